//! Hints: what a reader's environment and cgroup say of its job. Pure: the bytes are handed in.
//!
//! Only the names below are looked for, and of their values only what a field of [`Hints`] holds is kept; nothing else of the environment is kept,
//! logged or shown (it has credentials: `SLURM_JWT` and `AWS_*` among them, so no name is allowed by its beginning).

use crate::order::spec::OrderSpec;

/// Longest value that is taken: an order specification with a long root.
const VALUE_BYTES_MAX: usize = 4096;
/// Longest name of a job that is taken.
const JOB_BYTES_MAX: usize = 128;
/// Ranks of one node at most.
const LOCAL_MAX: u32 = 1024;
/// Orders of one process at most.
const ORDERS_MAX: usize = 16;

/// Every name that is looked for. Where several say the same, the first one counts.
const RANK: [&str; 3] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"];
const WORLD_SIZE: [&str; 3] = ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"];
const LOCAL_RANK: [&str; 3] = ["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"];
const LOCAL_WORLD_SIZE: [&str; 2] = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"];
const GROUP_RANK: [&str; 3] = ["GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK"];
const RESTARTS: [&str; 1] = ["TORCHELASTIC_RESTART_COUNT"];
const JOB: [&str; 2] = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];
const SEED: [&str; 1] = ["PL_GLOBAL_SEED"];
const ORDER: &str = "BELADY_ORDER";

/// What is known of a reader's job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    pub rank: Option<u32>,
    pub world_size: Option<u32>,
    pub local_rank: Option<u32>,
    pub local_world_size: Option<u32>,
    /// Number of the node.
    pub group_rank: Option<u32>,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restarts: Option<u32>,
    /// torchrun's run id or Slurm's job id.
    pub job: Option<String>,
    /// Lightning's `seed_everything`.
    pub seed: Option<u64>,
    /// `BELADY_ORDER`: declared by the training program's environment. Several are joined by `;`.
    pub orders: Vec<OrderSpec>,
    /// Kubernetes' pod uid or Slurm's job, from the cgroup.
    pub cgroup: Option<String>,
    /// What could not be understood, for people; names, and values of `BELADY_ORDER` only.
    pub notes: Vec<String>,
}

impl Hints {
    /// World size and this node's ranks: the launcher's, where the local ones are told (ranks of a node follow each other), else the process's own.
    #[must_use]
    pub fn ranks(&self) -> Option<(u32, std::ops::Range<u32>)> {
        let (world, rank) = (self.world_size.filter(|&world| world > 1)?, self.rank?);
        let node = || {
            let (first, count) = (rank.checked_sub(self.local_rank?)?, self.local_world_size?);
            (self.local_rank? < count && count <= LOCAL_MAX && first.checked_add(count)? <= world).then_some(first..first + count)
        };
        (rank < world).then(|| (world, node().unwrap_or(rank..rank + 1)))
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// From `/proc/PID/environ` (`NAME=VALUE`, each ended by NUL) and `/proc/PID/cgroup`.
#[must_use]
pub fn read(environment: &[u8], cgroup: &str) -> Hints {
    let mut hints = Hints::default();
    let value = |name: &str| -> Option<&str> {
        let value = environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok().filter(|value| !value.is_empty() && value.len() <= VALUE_BYTES_MAX)
    };
    let mut notes = Vec::new();
    let mut number = |names: &[&str]| -> Option<u64> {
        let (name, text) = names.iter().find_map(|name| Some((name, value(name)?)))?;
        let parsed = text.trim().parse().ok();
        if parsed.is_none() {
            notes.push(format!("{name} of a reader is not a whole number and is not used"));
        }
        parsed
    };
    let mut small = |names: &[&str]| number(names).and_then(|number| u32::try_from(number).ok());
    hints.rank = small(&RANK);
    hints.world_size = small(&WORLD_SIZE).filter(|world| *world > 0);
    hints.local_rank = small(&LOCAL_RANK);
    hints.local_world_size = small(&LOCAL_WORLD_SIZE).filter(|world| *world > 0);
    hints.group_rank = small(&GROUP_RANK);
    hints.restarts = small(&RESTARTS);
    hints.seed = number(&SEED);
    hints.job = JOB.iter().find_map(|name| value(name)).filter(|job| is_plain(job)).map(str::to_owned);
    if let Some(text) = value(ORDER) {
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()).take(ORDERS_MAX) {
            match part.parse::<OrderSpec>() {
                Ok(spec) => hints.orders.push(spec),
                Err(error) => notes.push(format!("{ORDER}={part} of a reader is not used: {error}")),
            }
        }
    }
    hints.notes = notes;
    hints.cgroup = cgroup.lines().find_map(group);
    hints
}

/// A name that may be shown: ids, not texts.
fn is_plain(text: &str) -> bool {
    text.len() <= JOB_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The pod or the job of one line `hierarchy:controllers:path` (cgroups(7)).
fn group(line: &str) -> Option<String> {
    let path = line.splitn(3, ':').nth(2)?;
    path.split('/').find_map(|part| {
        // kubelet's cgroupfs driver: pod<uid>; its systemd driver: kubepods-burstable-pod<uid, _ for ->.slice
        let slice = part.strip_suffix(".slice").filter(|slice| slice.starts_with("kubepods"));
        let pod = slice.and_then(|slice| slice.rsplit_once("-pod")).map(|(_, uid)| uid).or_else(|| part.strip_prefix("pod"));
        // Slurm: job_<id>
        let job = part.strip_prefix("job_").filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
        let pod = pod.filter(|uid| uid.len() >= 16).map(|uid| format!("pod-{}", uid.replace('_', "-")));
        pod.or_else(|| job.map(|id| format!("job-{id}"))).filter(|name| is_plain(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::spec::OrderKind;

    fn environment(pairs: &[&str]) -> Vec<u8> {
        pairs.iter().flat_map(|pair| pair.bytes().chain([0])).collect()
    }

    #[test]
    fn torchrun_says_it_all() {
        let pairs = [
            "PATH=/bin",
            "RANK=11",
            "LOCAL_RANK=3",
            "WORLD_SIZE=16",
            "LOCAL_WORLD_SIZE=8",
            "GROUP_RANK=1",
            "TORCHELASTIC_RUN_ID=job-7",
            "TORCHELASTIC_RESTART_COUNT=2",
            "PL_GLOBAL_SEED=42",
            "SLURM_PROCID=1",
        ];
        let hints = read(&environment(&pairs), "");
        assert_eq!((hints.rank, hints.local_rank, hints.world_size, hints.local_world_size), (Some(11), Some(3), Some(16), Some(8)));
        assert_eq!((hints.group_rank, hints.restarts, hints.seed, hints.job.as_deref()), (Some(1), Some(2), Some(42), Some("job-7")));
        assert!(hints.notes.is_empty() && hints.orders.is_empty());
        assert_eq!(hints.ranks(), Some((16, 8..16)));
    }

    #[test]
    fn slurm_and_open_mpi_are_understood() {
        let hints = read(&environment(&["SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1", "SLURM_NODEID=2", "SLURM_JOB_ID=991"]), "");
        assert_eq!((hints.rank, hints.world_size, hints.local_rank, hints.group_rank), (Some(5), Some(8), Some(1), Some(2)));
        assert_eq!(hints.job.as_deref(), Some("991"));
        assert_eq!(hints.ranks(), Some((8, 5..6)), "how many of a node is not told");
        let hints = read(&environment(&["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=4"]), "");
        assert_eq!((hints.rank, hints.world_size, hints.local_world_size), (Some(5), Some(8), Some(4)));
    }

    #[test]
    fn ranks_that_cannot_be_are_not_told() {
        for (pairs, ranks) in [
            (&["RANK=8", "WORLD_SIZE=8"][..], None),
            (&["RANK=0", "WORLD_SIZE=1"], None),
            (&["RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=5", "LOCAL_WORLD_SIZE=8"], Some((8, 3..4))),
            (&["RANK=7", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"], Some((8, 7..8))),
            (&["RANK=4294967295", "WORLD_SIZE=4294967295", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4294967295"], None),
        ] {
            assert_eq!(read(&environment(pairs), "").ranks(), ranks, "{pairs:?}");
        }
    }

    /// Nothing of a name that is not on the list is in what is kept, whatever its beginning.
    #[test]
    fn no_other_name_or_value_is_kept() {
        let secret = "s3cr3t";
        let names = [
            "SLURM_JWT",
            "AWS_SECRET_ACCESS_KEY",
            "BELADY_ORDER_TOKEN",
            "RANK_",
            "XRANK",
            "TORCHELASTIC_TOKEN",
            "OMPI_MCA_key",
            "HF_TOKEN",
        ];
        let mut pairs: Vec<String> = names.iter().map(|name| format!("{name}={secret}")).collect();
        // The listed names with values that are no numbers, or no plain ids, are not repeated either.
        pairs.extend(
            ["RANK=s3cr3t", "WORLD_SIZE=9s3cr3t", "PL_GLOBAL_SEED=s3cr3t", "TORCHELASTIC_RUN_ID=s3cr3t with spaces"].map(str::to_owned),
        );
        let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
        let hints = read(&environment(&pairs), "0::/s3cr3t.slice/x");
        let all = format!("{hints:?}");
        assert!(!all.contains(secret), "{all}");
        for name in names {
            assert!(!all.contains(name), "{all}");
        }
        assert_eq!(hints.notes.len(), 3, "{all}");
    }

    #[test]
    fn the_order_is_parsed_and_its_errors_are_notes() {
        let hints = read(&environment(&["BELADY_ORDER=torch-distributed:seed=3:root=train;torch-random ; sequential:root=val"]), "");
        assert_eq!(hints.orders.iter().map(|spec| spec.kind).collect::<Vec<_>>(), [OrderKind::TorchDistributed, OrderKind::Sequential]);
        assert!(hints.notes.len() == 1 && hints.notes[0].contains("torch-random") && hints.notes[0].contains("seed="), "{:?}", hints.notes);
    }

    #[test]
    fn damaged_environments_are_harmless() {
        for bytes in [
            &b""[..],
            b"\0\0",
            b"RANK",
            b"RANK=\0",
            b"=\0RANK=3",
            b"\xff\xfe=1\0RANK=\xff\0WORLD_SIZE=0\0",
            b"RANK=-1\0",
            b"RANK=99999999999\0",
        ] {
            let hints = read(bytes, "::::\n\n0:x");
            assert_eq!((hints.world_size, hints.ranks()), (None, None));
            assert!(matches!(hints.rank, None | Some(3)), "{bytes:?}");
        }
    }

    #[test]
    fn cgroups_name_the_pod_or_the_job() {
        let uid = "3f4a5b6c-1234-5678-9abc-def012345678";
        for (line, expected) in [
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-ab.scope",
                    uid.replace('-', "_")
                ),
                Some(format!("pod-{uid}")),
            ),
            (format!("4:memory:/kubepods/besteffort/pod{uid}/ab"), Some(format!("pod-{uid}"))),
            ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0".to_owned(), Some("job-123".to_owned())),
            ("0::/user.slice/user-1000.slice/session-2.scope".to_owned(), None),
            ("0::/podium/job_x".to_owned(), None),
        ] {
            assert_eq!(read(b"", &line).cgroup, expected, "{line}");
        }
    }
}
