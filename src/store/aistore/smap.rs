//! The cluster map, and which target an object is at: highest random weight over the live targets, bit for bit as AIStore does it.
//!
//! Pure. Source: NVIDIA/aistore `core/meta/smap.go`, `snode.go`, `hrw.go`, `cmn/xoshiro256`; NVIDIA's Python SDK computes the same.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

/// Seed of all digests (`cmn/cos` MLCG32).
const SEED: u64 = 1_103_515_245;
/// Node flags: in maintenance, being decommissioned. Such a target is given nothing new.
const NOT_PLACED: u64 = 4 | 8;

/// A live target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    digest: u64,
    /// `http://host:port`.
    pub(super) url: String,
}

/// What we need of a cluster map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Smap {
    pub(super) uuid: String,
    pub(super) version: u64,
    /// Those that objects are placed on.
    pub(super) targets: Vec<Target>,
    /// Addresses of all proxies.
    pub(super) proxies: Vec<String>,
    /// Why targets must not be asked directly: placement is weighted, or ids hash otherwise than here. (A target's
    /// `verifying_key` says nothing: those of 5.1 have one whether redirects are signed or not.)
    pub(super) indirect: Option<&'static str>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    uuid: String,
    version: Value,
    #[serde(default)]
    pmap: BTreeMap<String, NodeWire>,
    #[serde(default)]
    tmap: BTreeMap<String, NodeWire>,
}

#[derive(Deserialize)]
struct NodeWire {
    #[serde(default)]
    daemon_id: String,
    #[serde(default)]
    flags: Value,
    #[serde(default)]
    id_digest: u64,
    #[serde(default)]
    public_net: NetWire,
    #[serde(default)]
    placement: Value,
}

#[derive(Default, Deserialize)]
struct NetWire {
    #[serde(default)]
    direct_url: String,
}

/// A number, or a number in a string: AIStore writes both.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

fn is_said(value: &Value) -> bool {
    !(value.is_null() || value.as_str() == Some("") || value.as_object().is_some_and(serde_json::Map::is_empty))
}

impl Smap {
    /// Reads the JSON of `what=smap`.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let wire: Wire = serde_json::from_slice(json).map_err(|error| format!("the cluster map makes no sense: {error}"))?;
        let version = number(&wire.version).ok_or("the cluster map has no version")?;
        let mut map = Self { uuid: wire.uuid, version, targets: Vec::new(), proxies: Vec::new(), indirect: None };
        for (id, node) in &wire.tmap {
            let id = if node.daemon_id.is_empty() { id } else { &node.daemon_id };
            let digest = xxh64(id.as_bytes(), SEED);
            if is_said(&node.placement) {
                map.indirect = Some("placement is weighted");
            } else if node.id_digest != 0 && node.id_digest != digest {
                map.indirect = Some("node ids are hashed in another way");
            }
            let is_live = number(&node.flags).unwrap_or(0) & NOT_PLACED == 0;
            let url = node.public_net.direct_url.trim_end_matches('/');
            if is_live && url.is_empty() {
                map.indirect = Some("a target has no address");
            } else if is_live {
                map.targets.push(Target { digest, url: url.to_owned() });
            }
        }
        let addresses = wire.pmap.values().map(|node| node.public_net.direct_url.trim_end_matches('/'));
        map.proxies.extend(addresses.filter(|url| !url.is_empty()).map(str::to_owned));
        Ok(map)
    }

    /// The target that has (or will get) the object of this uname.
    pub(super) fn target(&self, uname: &str) -> Option<&Target> {
        let digest = xxh64(uname.as_bytes(), SEED);
        // The first of equals wins, as in AIStore; 64 bits make that a matter of form.
        self.targets.iter().rev().max_by_key(|target| mix(target.digest ^ digest))
    }
}

/// `cmn/xoshiro256` Hash: two rounds of splitmix, then xoshiro's scrambler.
const fn mix(seed: u64) -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    const M1: u64 = 0xbf58_476d_1ce4_e5b9;
    const M2: u64 = 0x94d0_49bb_1331_11eb;
    let mut z = seed.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(M1);
    z = (z ^ (z >> 27)).wrapping_mul(M2);
    z = (z ^ (z >> 31)).wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(M1);
    z = (z ^ (z >> 27)).wrapping_mul(M2);
    z = (z ^ (z >> 31)).wrapping_mul(5);
    z.rotate_left(7).wrapping_mul(9)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::store::aistore) fn node(id: &str, url: &str, more: &str) -> String {
        format!(
            r#""{id}":{{"daemon_id":"{id}","daemon_type":"target","id_digest":{},"public_net":{{"direct_url":"{url}"}},"new":[1]{more}}}"#,
            xxh64(id.as_bytes(), SEED)
        )
    }

    pub(in crate::store::aistore) fn map(version: u64, targets: &[String]) -> String {
        let targets = targets.join(",");
        format!(r#"{{"uuid":"Xy","version":"{version}","pmap":{{{}}},"tmap":{{{targets}}},"ext":null}}"#, node("p1", "http://p:1", ""))
    }

    fn three(more: [&str; 3]) -> Smap {
        let nodes: Vec<String> = ["t1", "t2", "t3"].iter().zip(more).map(|(id, more)| node(id, &format!("http://{id}"), more)).collect();
        Smap::parse(map(42, &nodes).as_bytes()).expect("a map")
    }

    /// The values of H are AIStore's own unit test; digests and choices were confirmed with NVIDIA's Python SDK.
    #[test]
    fn digests_and_choices_are_aistores() {
        assert_eq!((mix(0), mix(4_573_842)), (1_905_207_664_160_064_169, 5_026_071_747_115_404_967));
        for (text, digest) in [
            ("t1", 14_214_570_646_889_990_061),
            ("t2", 17_780_131_176_456_335_389),
            ("t3", 7_900_451_649_967_436_292),
            ("t8081", 8_068_595_039_456_460_735),
            ("ais/@#/mybucket/obj1", 17_037_399_786_638_499_582),
            ("aws/@#/b/imagenet/train-000000.tar", 5_457_955_807_616_641_361),
            ("ais/@uuid#ns/b/x", 16_627_063_805_262_011_241),
        ] {
            assert_eq!(xxh64(text.as_bytes(), SEED), digest, "{text}");
        }
        let map = three(["", "", ""]);
        assert_eq!((map.uuid.as_str(), map.version, map.indirect), ("Xy", 42, None));
        assert_eq!(map.proxies, ["http://p:1"]);
        for (uname, target) in [
            ("ais/@#/mybucket/obj0", "t1"),
            ("ais/@#/mybucket/obj1", "t2"),
            ("ais/@#/mybucket/obj2", "t3"),
            ("ais/@#/mybucket/obj3", "t3"),
            ("ais/@#/mybucket/obj4", "t3"),
            ("ais/@#/mybucket/obj5", "t1"),
            ("aws/@#/b/imagenet/train-000000.tar", "t3"),
        ] {
            assert_eq!(map.target(uname).map(|target| target.url.as_str()), Some(format!("http://{target}").as_str()), "{uname}");
        }
    }

    #[test]
    fn targets_in_maintenance_get_nothing() {
        for flags in [r#","flags":4"#, r#","flags":8"#, r#","flags":"4""#] {
            let map = three(["", "", flags]);
            assert_eq!(map.targets.len(), 2);
            assert_ne!(map.target("ais/@#/mybucket/obj2").expect("one of two").url, "http://t3");
        }
        assert_eq!(three(["", "", r#","flags":2"#]).targets.len(), 3);
        assert_eq!(Smap::parse(map(1, &[]).as_bytes()).expect("a map").target("x"), None);
    }

    #[test]
    fn weights_and_signatures_forbid_the_direct_way() {
        assert!(three(["", r#","placement":{"weight":"3"}"#, ""]).indirect.is_some());
        assert!(three(["", "", r#","verifying_key":"abc","placement":null"#]).indirect.is_none());
        let other = map(1, &[node("t1", "http://t1", "").replace("14214570646889990061", "7")]);
        assert!(Smap::parse(other.as_bytes()).expect("a map").indirect.is_some());
    }

    #[test]
    fn garbage_is_no_map() {
        for text in ["", "{", "[]", "{}", r#"{"version":"x"}"#, r#"{"version":"1","tmap":[1]}"#, "<html>"] {
            assert!(Smap::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
