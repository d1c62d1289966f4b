//! Orders equal those of the libraries installed here, in more forms than the vectors in `golden` have: splits, subsets, counts, replacement.

use std::process::Command;

use belady::order::spec::OrderSpec;
use serde_json::Value;

use crate::torch::{PYTHON, torch_is_here};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/real_orders.py");

#[test]
fn every_form_is_as_the_library_here_has_it() {
    if !torch_is_here() {
        return;
    }
    let output = Command::new(PYTHON).arg(SCRIPT).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let mut compared = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("one JSON object a line");
        let spec: OrderSpec = case["spec"].as_str().expect("a specification").parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let sampler = spec.sampler(serde_json::from_value(case["n"].clone()).expect("a size")).expect("it fits");
        for (epoch, expected) in (0..).zip(case["epochs"].as_array().expect("epochs")) {
            let order = sampler.order(epoch);
            assert_eq!(&serde_json::to_value(&order.places).expect("numbers"), expected, "{spec} epoch {epoch}");
            assert_eq!(order.places.len() as u64, sampler.len(), "{spec}");
            compared += 1;
        }
    }
    assert!(compared >= 300, "only {compared} epochs");
}
