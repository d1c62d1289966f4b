//! `mount.belady`: what mount(8) and fstab call. Translates their arguments (`options.rs`) and becomes `belady mount`, which validates, waits
//! until the mount answers, and says what is wrong. No dependencies: it runs at boot, when little else works.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

mod options;

/// mount(8): «incorrect invocation or permissions».
const WRONG_CALL: u8 = 1;
/// mount(8): «mount failure».
const FAILED: u8 = 32;

fn main() -> ExitCode {
    let mut args = Vec::new();
    for arg in std::env::args_os().skip(1) {
        match arg.into_string() {
            Ok(arg) => args.push(arg),
            Err(arg) => return refuse(WRONG_CALL, &format!("{} is not UTF-8", arg.display())),
        }
    }
    match options::translate(args) {
        Ok(options::Call::Nothing) => ExitCode::SUCCESS,
        Ok(options::Call::Run(args)) => {
            // Returns only when it fails.
            let error = Command::new(belady()).args(args).exec();
            refuse(FAILED, &format!("cannot start belady ({error}): install it beside mount.belady or in PATH"))
        }
        Err(error) => refuse(WRONG_CALL, &error),
    }
}

/// The program beside this one (links followed, so that /sbin/mount.belady may be one), else whatever PATH has.
fn belady() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok()).map(|path| path.with_file_name("belady"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("belady"))
}

fn refuse(status: u8, error: &str) -> ExitCode {
    eprintln!("mount.belady: {error}");
    ExitCode::from(status)
}
