//! Orders found out from recorded opens of unmodified PyTorch scripts, by the state machine that the daemon runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use belady::infer::log::{Logged, parse};
use belady::infer::verify::{Report, manifest_of, verify};

fn recorded(name: &str) -> Vec<Logged> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/opens").join(name);
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip");
    assert!(output.status.success(), "{}", path.display());
    let (opens, left_out) = parse(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!(left_out, 0);
    opens
}

fn report(opens: &[Logged]) -> Report {
    let began = Instant::now();
    let manifest = Arc::new(manifest_of(opens));
    verify(&manifest, opens, 1, &|| began.elapsed())
}

#[test]
fn seeded_scripts_are_found_by_128_opens_and_followed_to_their_end() {
    for (name, seed) in [("seed42-workers0.tsv.gz", 42), ("seed42-workers2.tsv.gz", 42), ("seed123456-workers4.tsv.gz", 123_456)] {
        let report = report(&recorded(name));
        let text = format!("{name}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{text}");
        let order = &report.orders[0];
        assert_eq!((order.kind.as_str(), order.seed), ("torch-random", seed), "{text}");
        assert!(order.locked_after <= 128, "{text}");
        assert!(report.predicted_fraction > 0.99, "{text}");
    }
}
