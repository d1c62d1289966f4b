//! The house's rules that a compiler does not check: who may use whom, who may say `fuser`, how long a file may be.
//!
//! The scan reads text up to the tests at the end of a file and takes every `crate::name` for a use of module `name`. It is checked on a toy
//! tree, so that it is known to fail.

use std::fs;
use std::path::{Path, PathBuf};

/// Module → what it may use, lowest first. `*`: everything.
const MAY_USE: [(&str, &[&str]); 20] = [
    ("types", &[]),
    ("order", &["types"]),
    ("dataset", &["types"]),
    ("plan", &["types", "order", "dataset"]),
    ("infer", &["types", "order", "dataset", "plan"]),
    ("stats", &["types"]),
    ("observe", &["types", "stats", "order", "dataset"]),
    ("store", &["types", "stats"]),
    ("cache", &["types", "stats"]),
    ("fetch", &["types", "stats", "store", "cache"]),
    ("prefetch", &["types", "stats", "order", "dataset", "plan", "infer", "observe", "fetch", "cache"]),
    // `cache` for the files it is handed by `fetch`: it opens none itself.
    ("fs", &["types", "stats", "dataset", "fetch", "cache"]),
    ("fuse", &["types", "fs", "stats"]),
    ("control", &["types", "stats"]),
    ("config", &["types", "order"]),
    ("demo", &["types", "stats", "order", "dataset"]),
    ("daemonize", &[]),
    ("logging", &[]),
    ("daemon", &["*"]),
    ("commands", &["*"]),
];

/// The crate's root and its binary: wiring.
const ROOTS: [&str; 2] = ["lib", "main"];
const LINES_MAX: usize = 500;

/// The part of a file that is not tests: up to the first `mod ... {` for tests, without single lines for tests before it.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            match lines.by_ref().find(|line| !line.trim_start().starts_with("#[")) {
                Some(item) if item.contains("mod ") && item.ends_with('{') => break,
                _ => continue,
            }
        }
        code += line;
        code.push('\n');
    }
    code
}

/// Names `x` in `crate::x` and in `crate::{x, y::z}`, comments left out.
fn uses(code: &str) -> Vec<String> {
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).fold(String::new(), |all, line| all + line + "\n");
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        match rest.strip_prefix('{') {
            None => found.push(name(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut part = String::new();
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        ',' if depth == 0 => found.push(name(&std::mem::take(&mut part))),
                        _ => {
                            depth = if c == '{' {
                                depth + 1
                            } else if c == '}' {
                                depth - 1
                            } else {
                                depth
                            };
                            part.push(c);
                        }
                    }
                }
                found.push(name(&part));
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Everything in `src` that breaks a rule.
fn breaches(src: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    let mut breaches = Vec::new();
    for path in files {
        let relative = path.strip_prefix(src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs");
        let text = fs::read_to_string(&path).unwrap();
        let stem = path.file_stem().unwrap().to_string_lossy();
        // A file of tests beside its module (`x_tests.rs`, `x/tests.rs`, `x/tests/…`) is tests as a whole.
        if stem == "tests" || stem.ends_with("_tests") || relative.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let code = &code(&text);
        let shown = relative.display();
        let lines = code.lines().count();
        if lines > LINES_MAX {
            breaches.push(format!("{shown}: {lines} lines without its tests; {LINES_MAX} is the wall"));
        }
        let code_without_comments = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        if module != "fuse" && (code_without_comments.contains("fuser::") || code_without_comments.contains("use fuser")) {
            breaches.push(format!("{shown}: says fuser; only fuse/ does"));
        }
        if ROOTS.contains(&module) {
            continue;
        }
        let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
            breaches.push(format!("{shown}: module {module} has no row in the table of layers"));
            continue;
        };
        for used in uses(code) {
            if used != module && !may_use.contains(&"*") && !may_use.contains(&used.as_str()) {
                breaches.push(format!("{shown}: {module} uses {used}; it may use {may_use:?}"));
            }
        }
    }
    breaches
}

#[test]
fn the_house_keeps_its_layers() {
    let breaches = breaches(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn the_scan_finds_what_it_should() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path();
    for folder in ["plan", "fuse", "store"] {
        fs::create_dir(src.join(folder)).unwrap();
    }
    let write = |name: &str, text: &str| fs::write(src.join(name), text).unwrap();
    write("lib.rs", "pub mod types;\nuse crate::plan;\n");
    write("types.rs", "// crate::store is only mentioned\n");
    write("fuse/mod.rs", "use fuser::Filesystem;\nuse crate::{fs::X, stats};\n");
    write("store/mod.rs", "use crate::types::A;\n#[cfg(test)]\nmod tests { use crate::plan::B; }\n");
    write("store/tests.rs", "use crate::plan::B;\n");
    write("store/open.rs", "#[cfg(test)]\nmod toy;\nuse crate::stats::S;\n");
    assert_eq!(breaches(src), Vec::<String>::new(), "this tree keeps the rules");

    write("plan/mod.rs", "use crate::{types::A, fetch::{Door, x}, dataset};\n");
    write("types.rs", "fn f() { crate::stats::g() }\n");
    write("store/s3.rs", "use fuser::Config;\n");
    write("store/long.rs", &"// a line\n".repeat(LINES_MAX + 1));
    write("store/open.rs", "#[cfg(test)]\n#[path = \"x.rs\"]\nmod toy;\nuse crate::cache::S;\n");
    write("extra.rs", "");
    let breaches = breaches(src);
    for wanted in [
        "plan/mod.rs: plan uses fetch",
        "types.rs: types uses stats",
        "store/open.rs: store uses cache",
        "store/s3.rs: says fuser",
        "store/long.rs: 501 lines",
        "extra.rs: module extra has no row",
    ] {
        assert!(breaches.iter().any(|breach| breach.starts_with(wanted)), "{wanted} in {breaches:#?}");
    }
    assert_eq!(breaches.len(), 6, "{breaches:#?}");
}
