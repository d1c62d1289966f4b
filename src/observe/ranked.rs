//! What in a command line says which of its job's ranks a process is. Without it the ranks of one job have one command line.
//!
//! Only names that number a process or its device among its likes, as launchers and their users write them: torch (`--local_rank`), accelerate
//! (`--machine_rank`), JAX (`--process_id`), TensorFlow (`--task_index`), Slurm's and Open MPI's variables in a shell's `-c`. A seed, a port or a
//! folder is no rank: with other ones it is another job.

use xxhash_rust::xxh3::Xxh3;

/// Names of options and variables, in small letters with `_`; of dotted ones (`trainer.local_rank=3`) the last part.
const NAMES: [&str; 21] = [
    "rank",
    "local_rank",
    "global_rank",
    "node_rank",
    "group_rank",
    "machine_rank",
    "world_rank",
    "process_id",
    "proc_id",
    "process_index",
    "task_index",
    "device",
    "device_id",
    "gpu",
    "gpu_id",
    "cuda_visible_devices",
    "slurm_procid",
    "slurm_localid",
    "ompi_comm_world_rank",
    "ompi_comm_world_local_rank",
    "pmi_rank",
];

/// Hash of a command line (arguments ended by NUL) without the numbers of ranks in it, and whether there were any.
pub(super) fn without_ranks(line: &[u8]) -> (u64, bool) {
    let mut hash = Xxh3::new();
    let mut ranked = false;
    let mut words = line.split(|byte| *byte == 0 || byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let (name, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        let is_rank = is_name(name) && (value.is_some() || name.starts_with(b"-"));
        let value = value.or_else(|| words.peek().copied().filter(|_| is_rank)).filter(|value| is_rank && is_number(value));
        if value.is_none() {
            hash.update(word);
        } else {
            hash.update(name);
            ranked = true;
            if name.len() == word.len() {
                words.next();
            }
        }
        hash.update(&[0]);
    }
    (hash.digest().max(1), ranked)
}

fn is_name(word: &[u8]) -> bool {
    let word = word.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let word = &word[word.iter().take_while(|byte| **byte == b'-').count()..];
    let name: Vec<u8> = word.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() }).collect();
    NAMES.iter().any(|known| known.as_bytes() == name)
}

/// `3`, `cuda:3`, `0,1`; quoted or before a `;` in a shell's text.
fn is_number(value: &[u8]) -> bool {
    let value = value.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    value.iter().any(u8::is_ascii_digit) && value.iter().all(|byte| byte.is_ascii_digit() || b",\"';".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (u64, bool) {
        without_ranks((line.replace(' ', "\0") + "\0").as_bytes())
    }

    #[test]
    fn ranks_of_one_job_have_one_command_line() {
        for line in [
            "python train.py --rank @ --lr 0.1",
            "python train.py --local_rank=@",
            "python train.py --local-rank @",
            "python train.py trainer.local_rank=@",
            "python train.py --device cuda:@",
            "python train.py --gpu @ --nodes 2",
            "bash -c RANK=@\u{1}LOCAL_RANK=@;\u{1}python\u{1}train.py",
            "python -m jobs.train --process_id=@",
        ] {
            let line = line.replace('\u{1}', "\n");
            let (first, other) = (of(&line.replace('@', "0")), of(&line.replace('@', "13")));
            assert!(first == other && first.1, "{line}");
            assert_ne!(first, of(&line.replace('@', "0").replace("train", "eval")), "{line}");
        }
    }

    #[test]
    fn other_arguments_are_another_job() {
        for (one, other) in [
            ("python train.py --seed 1", "python train.py --seed 2"),
            ("python train.py --lora-rank 8", "python train.py --lora-rank 16"),
            ("python train.py out/rank", "python train.py out/rank2"),
            ("python train.py --rank 0 --fold 1", "python train.py --rank 0 --fold 2"),
            ("python train.py", "python train.py --rank 0"),
            ("python train.py --rank --fast", "python train.py --rank --slow"),
            ("python train.py --device cpu", "python train.py --device tpu"),
        ] {
            assert_ne!(of(one).0, of(other).0, "{one}, {other}");
        }
        assert_eq!(of(""), of(""));
        assert!(!of("python train.py --device cpu --rank").1);
    }
}
