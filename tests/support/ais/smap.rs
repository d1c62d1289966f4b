//! The cluster map: who is a member, in which state, and which target has an object. Each change counts the version up.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::hash::{digest, winner};
use super::objects::Bck;

/// Node flags of `core/meta/snode.go`.
pub(super) const FLAG_MAINTENANCE: u64 = 4;

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) address: SocketAddr,
    pub(super) flags: u64,
    /// Placement (5.2): shown in the map, and used for the choice of a target.
    pub(super) weight: Option<f64>,
}

impl Member {
    pub(super) fn new(id: &str, address: SocketAddr) -> Self {
        Self { id: id.to_owned(), address, flags: 0, weight: None }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn json(&self, kind: &str, signing: bool) -> Value {
        let net = json!({
            "node_ip_addr": self.address.ip().to_string(),
            "node_hostname": self.address.ip().to_string(),
            "daemon_port": self.address.port().to_string(),
            "direct_url": self.url(),
        });
        let mut node = json!({
            "daemon_id": self.id,
            "daemon_type": kind,
            "flags": self.flags,
            "id_digest": digest(&self.id),
            "public_net": net,
            "intra_control_net": net,
            "intra_data_net": net,
        });
        if let Some(weight) = self.weight {
            node["placement"] = json!({ "weight": weight.to_string() });
        }
        // proxies have one since 5.0, whether redirects are signed or not; targets since 5.1, which is the first that can sign
        if kind == "proxy" || signing {
            node["verifying_key"] = json!(format!("{}=", "A".repeat(43)));
        }
        node
    }
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Smap {
    pub(super) version: u64,
    pub(super) primary: String,
    pub(super) proxies: Vec<Member>,
    pub(super) targets: Vec<Member>,
}

impl Smap {
    /// The target that has this name; maintenance excluded. `None` without targets.
    pub(super) fn target_of(&self, bck: &Bck, key: &str) -> Option<&Member> {
        let live: Vec<&Member> = self.live().collect();
        winner(&bck.uname(key), live.iter().map(|target| (digest(&target.id), target.weight))).map(|at| live[at])
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Member> {
        self.targets.iter().filter(|target| target.flags & FLAG_MAINTENANCE == 0)
    }

    /// As `GET /v1/daemon?what=smap` has it.
    pub(super) fn json(&self, signing: bool) -> Value {
        let nodes = |members: &[Member], kind: &str| -> Map<String, Value> {
            members.iter().map(|member| (member.id.clone(), member.json(kind, signing))).collect()
        };
        let primary = self.proxies.iter().find(|proxy| proxy.id == self.primary);
        json!({
            "uuid": "fAkEcLuSt",
            "version": self.version.to_string(),
            "creation_time": "2026-01-01T00:00:00Z",
            "ext": null,
            "proxy_si": primary.map_or(Value::Null, |primary| primary.json("proxy", signing)),
            "pmap": nodes(&self.proxies, "proxy"),
            "tmap": nodes(&self.targets, "target"),
        })
    }
}
