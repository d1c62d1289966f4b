//! A real mount, seen by programs: what they expect of any file system, and what only this one must keep.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use belady::fs::OnChange;
use belady::fuse::{Feature, MountConfig, MountError, Unmount, mount};
use belady::types::{Outcome, ReadEvent};
use rustix::io::Errno;

use crate::support::bucket::Bucket;
use crate::support::mount::{Setup, TestMount, with_deadline};

/// Bytes that differ everywhere and from file to file.
fn body(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 32)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A small dataset: classes, an empty file, sizes around page and read-ahead borders.
fn dataset() -> Arc<Bucket> {
    let sizes = [0, 1, 4095, 4096, 4097, 110_000, 131_072, 1_048_576, 1_048_577];
    Bucket::of((0..40_u64).map(|n| {
        let len = sizes[usize::try_from(n).unwrap() % sizes.len()];
        (format!("train/class{:02}/{n:04}.jpg", n % 4), body(n, len))
    }))
}

fn config_at(directory: &Path, allow_other: bool) -> MountConfig {
    let (mountpoint, fsname) = (directory.to_owned(), "test".to_owned());
    MountConfig { mountpoint, fsname, allow_other, threads: 1, nonempty: false, disable: BTreeSet::new() }
}

fn raw(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// All ways in which reads can reach their bytes.
fn setups() -> Vec<(&'static str, Setup)> {
    let without = |features: &[Feature]| features.iter().copied().collect::<BTreeSet<_>>();
    vec![
        ("all features", Setup::default()),
        ("no passthrough", Setup { disable: without(&[Feature::Passthrough]), ..Setup::default() }),
        ("no passthrough, disk", Setup { disable: without(&[Feature::Passthrough]), memory: false, ..Setup::default() }),
        ("no kernel features", Setup { disable: without(&Feature::ALL), memory: false, ..Setup::default() }),
    ]
}

#[test]
fn every_file_reads_as_its_object_in_every_mode() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let mount = TestMount::with(dataset(), setup);
            for pass in ["cold", "warm"] {
                for object in mount.bucket.listing() {
                    let read = mount.read(&object.key).unwrap();
                    assert!(read == mount.bucket.body(&object.key), "{name}, {pass}: {} differs", object.key);
                }
            }
            let objects_with_bytes = mount.bucket.listing().iter().filter(|object| object.size > 0).count() as u64;
            assert_eq!(mount.bucket.gets.load(SeqCst), objects_with_bytes, "{name}: one GET per object");
            assert_eq!(mount.bucket.heads.load(SeqCst), 0, "{name}");
            let expected = if name == "all features" && rustix::process::getuid().is_root() { 2 * objects_with_bytes } else { 0 };
            assert_eq!(mount.stats.reads.passthrough_opens.get(), expected, "{name}: passthrough opens");
            assert_eq!(mount.stats.reads.errors.get(), 0, "{name}");
            mount.end();
        }
    });
}

#[test]
fn a_listing_is_complete_in_a_fixed_order_and_can_be_sought() {
    with_deadline(|| {
        let names: Vec<String> = (0..5000).map(|n| format!("{n:05}")).collect();
        let mount = TestMount::of(Bucket::of(names.iter().map(|name| (format!("d/{name}"), Vec::new()))));
        let list = || fs::read_dir(mount.path("d")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(list().eq(names.iter().cloned()) && list().eq(names.iter().cloned()), "two listings are the same");

        // telldir, seekdir, rewinddir on one open directory (reports B20 and B21).
        let directory = File::open(mount.path("d")).unwrap();
        let mut dir = rustix::fs::Dir::new(directory).unwrap();
        let mut next = || dir.read().map(|entry| entry.unwrap());
        let first: Vec<_> = (0..10).map_while(|_| next()).collect();
        let (place, after) = (first[4].offset(), first[5].file_name().to_owned());
        let all = 10 + std::iter::from_fn(next).count();
        assert_eq!(all, names.len() + 2);
        dir.seek(place).unwrap();
        assert_eq!(dir.read().unwrap().unwrap().file_name(), &*after, "seekdir");
        dir.rewind();
        assert_eq!(std::iter::from_fn(|| dir.read()).count(), all, "rewinddir");
    });
}

#[test]
fn many_processes_list_one_directory_together() {
    with_deadline(|| {
        let mount = TestMount::of(Bucket::of((0..2000).map(|n| (format!("d/{n}"), Vec::new()))));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let names: BTreeSet<_> = fs::read_dir(mount.path("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                    assert_eq!(names.len(), 2000);
                });
                scope.spawn(|| (0..200).for_each(|n| assert!(mount.path(&format!("d/{n}")).exists())));
            }
        });
    });
}

#[test]
fn inode_numbers_agree_and_survive_a_remount() {
    with_deadline(|| {
        let numbers = |mount: &TestMount| -> Vec<u64> {
            let mut seen = Vec::new();
            for class in fs::read_dir(mount.path("train")).unwrap().map(Result::unwrap) {
                for entry in fs::read_dir(class.path()).unwrap().map(Result::unwrap) {
                    assert_eq!(entry.ino(), fs::metadata(entry.path()).unwrap().ino(), "{:?}", entry.path());
                    seen.push(entry.ino());
                }
                assert_eq!(class.ino(), fs::metadata(class.path()).unwrap().ino());
            }
            seen
        };
        let first = TestMount::of(dataset());
        let before = numbers(&first);
        first.end();
        assert_eq!(before, numbers(&TestMount::of(dataset())));
        assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 40);
    });
}

#[test]
fn attributes_are_steady_and_sane() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let root = fs::metadata(mount.root()).unwrap();
        assert!(root.is_dir() && root.mtime() > 1_600_000_000, "the root is as new as its newest object");
        assert_eq!(root.mtime(), fs::metadata(mount.root()).unwrap().mtime());
        let file = fs::metadata(mount.path("train/class01/0005.jpg")).unwrap();
        assert_eq!((file.len(), file.blocks(), file.permissions().mode() & 0o7777, file.nlink()), (110_000, 215, 0o444, 1));
        assert_eq!(file.uid(), rustix::process::getuid().as_raw());
        let size = rustix::fs::statvfs(mount.root()).unwrap();
        assert!(size.f_blocks > 0 && size.f_bsize == 4096 && size.f_namemax == 255 && size.f_files == 40);
        for _ in 0..2 {
            assert_eq!(raw(&fs::metadata(mount.path("train/none")).unwrap_err()), Some(Errno::NOENT.raw_os_error()));
        }
    });
}

#[test]
fn every_attempt_to_write_is_erofs() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let file = mount.path("train/class01/0001.jpg");
        let erofs = |result: std::io::Result<()>, what: &str| {
            assert_eq!(result.map_err(|error| raw(&error)), Err(Some(Errno::ROFS.raw_os_error())), "{what}");
        };
        erofs(OpenOptions::new().read(true).write(true).open(&file).map(drop), "open for reading and writing");
        erofs(OpenOptions::new().append(true).open(&file).map(drop), "open for appending");
        erofs(File::create(mount.path("new")).map(drop), "create");
        erofs(fs::create_dir(mount.path("dir")), "mkdir");
        erofs(fs::remove_file(&file), "unlink");
        erofs(fs::remove_dir(mount.path("train")), "rmdir");
        erofs(fs::rename(&file, mount.path("other")), "rename");
        erofs(std::os::unix::fs::symlink("x", mount.path("link")), "symlink");
        erofs(fs::hard_link(&file, mount.path("hard")), "link");
        erofs(fs::set_permissions(&file, fs::Permissions::from_mode(0o777)), "chmod");
        erofs(rustix::fs::setxattr(&file, "user.x", b"1", rustix::fs::XattrFlags::empty()).map_err(Into::into), "setxattr");
        assert_eq!(mount.bucket.gets.load(SeqCst), 0, "no request was sent for any of them");
    });
}

#[test]
fn the_calls_that_programs_make_on_the_side_work_or_fail_as_elsewhere() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let name = "train/class01/0005.jpg";
        let (path, expected) = (mount.path(name), mount.bucket.body(name));
        let file = File::open(&path).unwrap();
        // CPython's open(): TCGETS, fstat, lseek, read to the end.
        assert_eq!(rustix::termios::tcgetattr(&file).map(drop), Err(Errno::NOTTY));
        assert_eq!(rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 8]), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(10)), Ok(10));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(10)), Ok(expected.len() as u64));
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        file.sync_all().unwrap();
        assert_eq!(rustix::fs::access(&path, rustix::fs::Access::WRITE_OK), Err(Errno::ROFS));

        let copy = tempfile::tempfile().unwrap();
        let mut offset = 0;
        while rustix::fs::sendfile(&copy, &file, Some(&mut offset), 1 << 20).unwrap() > 0 {}
        assert_eq!((offset, copy.metadata().unwrap().len()), (expected.len() as u64, expected.len() as u64), "sendfile");
        let mut sent = vec![0; expected.len()];
        copy.read_exact_at(&mut sent, 0).unwrap();
        assert!(sent == expected, "sendfile's bytes");
        let mut target = tempfile::tempfile().unwrap();
        let mut source = File::open(&path).unwrap();
        assert_eq!(std::io::copy(&mut source, &mut target).unwrap(), expected.len() as u64, "copy_file_range or its fallback");
    });
}

#[test]
fn direct_and_partial_reads_are_whole_up_to_the_end_of_the_file() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let mount = TestMount::with(dataset(), setup);
            let key = "train/class01/0005.jpg";
            let expected = mount.bucket.body(key);
            let file = File::open(mount.path(key)).unwrap();
            for (offset, len) in [(0, 1), (4095, 2), (100_000, 10_000), (109_999, 1)] {
                let mut part = vec![0; len];
                file.read_exact_at(&mut part, offset).unwrap();
                assert!(part[..] == expected[usize::try_from(offset).unwrap()..][..len], "{name}: {offset}+{len}");
            }
            assert_eq!(file.read_at(&mut [0; 100], 110_000).unwrap(), 0, "{name}: at the end");
            assert_eq!(file.read_at(&mut [0; 100], 109_950).unwrap(), 50, "{name}: over the end");

            let direct = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed()).open(mount.path(key));
            // Passthrough to a file system without O_DIRECT refuses it, as that file system does.
            let Ok(mut direct) = direct else { continue };
            let mut all = Vec::new();
            if direct.read_to_end(&mut all).is_ok() {
                assert!(all == expected, "{name}: O_DIRECT");
            }
        }
    });
}

#[test]
fn files_can_be_mapped() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let mount = TestMount::with(dataset(), setup);
            // `cat` through a map: the loader of a shared object, numpy and safetensors do this. Without unsafe code here, a program does it.
            let key = "train/class03/0007.jpg";
            let script = "import mmap,sys,hashlib\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                          p=mmap.mmap(f.fileno(),0,mmap.MAP_PRIVATE,prot=mmap.PROT_READ)\nassert m[:]==p[:]\nsys.stdout.buffer.write(m[:])";
            let python = std::process::Command::new("python3").args(["-c", script]).arg(mount.path(key)).output();
            let Ok(output) = python else { return }; // no python here
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stdout == mount.bucket.body(key), "{name}");
        }
    });
}

#[test]
fn many_readers_of_one_cold_file_make_one_get() {
    with_deadline(|| {
        let bucket = Bucket::of([("one".to_owned(), body(1, 10 << 20))]);
        bucket.hold(true);
        let mount = TestMount::of(bucket);
        let barrier = Barrier::new(65);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    barrier.wait();
                    assert!(mount.read("one").unwrap() == mount.bucket.body("one"));
                });
            }
            barrier.wait();
            mount.bucket.hold(false);
        });
        assert_eq!(mount.bucket.gets.load(SeqCst), 1);
        assert_eq!(mount.stats.reads.opens.get(), 64);
    });
}

#[test]
fn large_files_are_read_by_ranges() {
    with_deadline(|| {
        let mount = TestMount::of(Bucket::of([("big".to_owned(), body(2, 20 << 20))]));
        let expected = mount.bucket.body("big");
        let mut file = File::open(mount.path("big")).unwrap();
        assert_eq!(mount.bucket.gets.load(SeqCst), 0, "an open of a large file fetches nothing");
        let mut part = vec![0; 5000];
        file.seek(SeekFrom::Start((15 << 20) + 17)).unwrap();
        file.read_exact(&mut part).unwrap();
        assert!(part[..] == expected[(15 << 20) + 17..][..5000]);
        assert!(mount.bucket.bytes.load(SeqCst) < 10 << 20, "one small read does not fetch the file");
        assert!(mount.read("big").unwrap() == expected);
    });
}

#[test]
fn a_large_file_once_complete_is_read_by_the_kernel() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let expected = u64::from(name == "all features" && rustix::process::getuid().is_root());
            let mount = TestMount::with(Bucket::of([("big".to_owned(), body(2, 20 << 20))]), setup);
            assert!(mount.read("big").unwrap() == mount.bucket.body("big"), "{name}");
            // A close is told to the mount a moment later, and an inode that is still open stays in its mode.
            while mount.stats.reads.passthrough_opens.get() < expected {
                assert!(mount.read("big").unwrap() == mount.bucket.body("big"), "{name}");
            }
            assert!(mount.bucket.bytes.load(SeqCst) <= 20 << 20, "{name}: fetched once");
        }
    });
}

#[test]
fn an_open_is_held_a_moment_and_then_the_reads_wait() {
    with_deadline(|| {
        let bucket = Bucket::of([("slow".to_owned(), body(3, 5000))]);
        bucket.hold(true);
        let mut setup = Setup::default();
        setup.fs.open_hold = Duration::from_millis(20);
        let mut mount = TestMount::with(bucket, setup);
        let mut file = File::open(mount.path("slow")).unwrap(); // returns although nothing has come
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            file.read_to_end(&mut all).map(|_| all)
        });
        while mount.stats.reads.opens.get() == 0 {
            thread::yield_now();
        }
        mount.bucket.hold(false);
        assert!(reader.join().unwrap().unwrap() == mount.bucket.body("slow"));
        assert_eq!(mount.bucket.gets.load(SeqCst), 1, "the read joined the open's fetch");

        let mut seen = Vec::new();
        let (mut opened, mut released) = (false, false);
        while !(opened && released) {
            let event = mount.events.blocking_recv().unwrap();
            opened |= matches!(event, ReadEvent::Opened { .. });
            released |= matches!(event, ReadEvent::Released { .. });
            seen.push(event);
        }
        let waits = |wanted: fn(&ReadEvent) -> bool| seen.iter().filter(|event| wanted(event)).count();
        assert!(waits(|event| matches!(event, ReadEvent::WaitBegan { .. })) >= 1);
        assert_eq!(
            waits(|event| matches!(event, ReadEvent::WaitBegan { .. })),
            waits(|event| matches!(event, ReadEvent::WaitEnded { .. })),
            "{seen:?}"
        );
        assert_eq!(waits(|event| matches!(event, ReadEvent::Opened { outcome: Outcome::Miss, .. })), 1, "{seen:?}");
    });
}

#[test]
fn a_read_ends_within_its_deadline_and_others_are_not_stalled() {
    with_deadline(|| {
        let bucket = Bucket::of([("stuck".to_owned(), body(4, 5000)), ("empty".to_owned(), Vec::new())]);
        bucket.hold(true);
        let mut setup = Setup::default();
        (setup.fs.open_hold, setup.fs.read_deadline) = (Duration::from_millis(10), Duration::from_millis(200));
        let mount = TestMount::with(bucket, setup);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| assert_eq!(mount.read("stuck").map_err(|error| raw(&error)), Err(Some(Errno::IO.raw_os_error()))));
            }
            scope.spawn(|| assert_eq!(mount.read("empty").unwrap(), b""));
        });
        assert!(mount.stats.reads.errors.get() > 0);
        mount.bucket.hold(false);
        assert!(mount.read("stuck").unwrap() == mount.bucket.body("stuck"), "the next open gets the bytes");
    });
}

#[test]
fn a_changed_object_is_served_anew_from_the_next_open_on() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let bucket = Bucket::of([("file".to_owned(), body(5, 300_000)), ("big".to_owned(), body(6, 17 << 20))]);
            let mount = TestMount::with(bucket, setup);
            let old_big = File::open(mount.path("big")).unwrap();
            old_big.read_exact_at(&mut [0; 10], 0).unwrap();
            mount.bucket.put("file", body(7, 200_000));
            mount.bucket.put("big", body(8, 18 << 20));

            assert!(mount.read("file").unwrap() == mount.bucket.body("file"), "{name}: the new version");
            assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), 200_000, "{name}: and its size");
            assert_eq!(mount.bucket.heads.load(SeqCst), 1, "{name}: one HEAD");

            let late = old_big.read_exact_at(&mut [0; 10], 12 << 20);
            assert_eq!(late.map_err(|error| raw(&error)), Err(Some(Errno::STALE.raw_os_error())), "{name}: open handles are stale");
            // The change is learned after that read was answered; an open in between notices it by itself.
            let new = loop {
                let read = mount.read("big");
                if read.as_ref().map_err(raw).err() != Some(Some(Errno::STALE.raw_os_error())) {
                    break read.unwrap();
                }
            };
            assert!(new == mount.bucket.body("big"), "{name}: the new large version");
        }
    });
}

#[test]
fn a_changed_object_is_an_error_where_that_was_asked_for() {
    with_deadline(|| {
        let bucket = Bucket::of([("file".to_owned(), body(5, 3000))]);
        let mut setup = Setup::default();
        setup.fs.on_change = OnChange::Fail;
        let mount = TestMount::with(bucket, setup);
        mount.bucket.put("file", body(6, 3000));
        assert_eq!(mount.read("file").map_err(|error| raw(&error)), Err(Some(Errno::IO.raw_os_error())));
        assert_eq!(mount.bucket.heads.load(SeqCst), 0);
    });
}

#[test]
fn a_deleted_object_is_gone_at_open() {
    with_deadline(|| {
        let mount = TestMount::of(Bucket::of([("file".to_owned(), body(5, 3000))]));
        mount.bucket.delete("file");
        assert_eq!(mount.read("file").map_err(|error| raw(&error)), Err(Some(Errno::NOENT.raw_os_error())));
    });
}

#[test]
fn cached_and_passthrough_opens_of_one_file_do_not_collide() {
    with_deadline(|| {
        let bucket = Bucket::of([("file".to_owned(), body(9, 200_000))]);
        bucket.hold(true);
        let mut setup = Setup::default();
        setup.fs.open_hold = Duration::from_millis(10);
        let mount = TestMount::with(bucket, setup);
        let early = File::open(mount.path("file")).unwrap(); // opened before the bytes came: reads
        mount.bucket.hold(false);
        let expected = mount.bucket.body("file");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| assert!(mount.read("file").unwrap() == expected)));
            }
        });
        let before = mount.stats.reads.passthrough_opens.get();
        assert_eq!(before, 0, "all followed the first");
        drop(early);
        if rustix::process::getuid().is_root() {
            while mount.stats.reads.passthrough_opens.get() == 0 {
                assert!(mount.read("file").unwrap() == expected); // until the kernel has told us of the close
            }
        }
    });
}

#[test]
fn the_control_files_are_there_by_name_and_never_listed() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let root: Vec<_> = fs::read_dir(mount.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(root, ["train"]);
        for name in ["stats", "stats.json", "config.toml", "order"] {
            assert_eq!(mount.read(&format!(".belady/{name}")).unwrap(), format!("this is {name}\n").into_bytes());
        }
        let inside: Vec<_> = fs::read_dir(mount.path(".belady")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(inside, ["config.toml", "order", "stats", "stats.json"]);
        assert!(!mount.path(".belady/other").exists());
        assert_eq!(mount.stats.reads.accesses.miss.get() + mount.stats.reads.accesses.retained.get(), 0, "they are not accesses");
    });
}

#[test]
fn mounting_twice_unmounting_while_busy_and_lazily() {
    with_deadline(|| {
        let mount1 = TestMount::of(dataset());
        assert!(matches!(mount(&mount1.fs, config_at(mount1.root(), false)), Err(MountError::AlreadyMounted(_))));
        let key = "train/class01/0005.jpg";
        let held = File::open(mount1.path(key)).unwrap();
        assert!(matches!(mount1.mounted.unmount(Unmount::WhenIdle), Err(MountError::Busy(_))));
        mount1.mounted.unmount(Unmount::Lazy).unwrap();
        assert!(!mount1.path("train").exists(), "off the tree at once");
        let mut all = Vec::new();
        (&held).read_to_end(&mut all).unwrap();
        assert!(all == mount1.bucket.body(key), "open files go on working");
        assert!(!mount1.mounted.has_ended());
        drop(held);
        let wait = async { tokio::time::timeout(crate::support::mount::PATIENCE, mount1.mounted.wait()).await };
        assert!(mount1.runtime.handle().block_on(wait).is_ok());
        assert_eq!(mount1.fs.open_handles(), 0, "whatever the kernel did not tell any more is let go");
    });
}

/// A FUSE mount whose daemon is gone, as a SIGKILL leaves it.
fn leave_a_dead_mount(at: &Path, subtype: &str) {
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&device).to_string();
    for (key, value) in
        [("source", "dead"), ("subtype", subtype), ("fd", &descriptor), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")]
    {
        fsconfig_set_string(&context, key, value).unwrap();
    }
    fsconfig_create(&context).unwrap();
    let detached = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    rustix::mount::move_mount(&detached, "", rustix::fs::CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
    drop(device); // the daemon dies
    assert_eq!(raw(&fs::metadata(at).unwrap_err()), Some(Errno::NOTCONN.raw_os_error()));
}

#[test]
fn a_dead_mount_of_ours_is_taken_away_first_and_one_of_others_is_not() {
    if !rustix::process::getuid().is_root() {
        return; // leaving a dead mount behind takes the right to mount
    }
    with_deadline(|| {
        let other = TestMount::of(dataset());
        let directory = tempfile::tempdir().unwrap();
        leave_a_dead_mount(directory.path(), "sshfs");
        match mount(&other.fs, config_at(directory.path(), false)) {
            Err(MountError::DeadMount { kind, .. }) => assert_eq!(kind, "fuse.sshfs"),
            other => panic!("{other:?}"),
        }
        belady::fuse::unmount(directory.path(), Unmount::Lazy).unwrap();

        leave_a_dead_mount(directory.path(), "belady");
        let mounted = mount(&other.fs, config_at(directory.path(), false)).unwrap();
        assert!(directory.path().join("train").is_dir());
        mounted.unmount(Unmount::WhenIdle).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left below");
    });
}

#[test]
fn allow_other_without_root_names_the_line_that_is_missing() {
    let allowed = fs::read_to_string("/etc/fuse.conf").is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"));
    if rustix::process::getuid().is_root() || allowed {
        return; // allowed
    }
    with_deadline(|| {
        let other = TestMount::of(dataset());
        let directory = tempfile::tempdir().unwrap();
        match mount(&other.fs, config_at(directory.path(), true)) {
            Err(error @ MountError::AllowOther) => assert!(error.to_string().contains("/etc/fuse.conf")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn pages_are_kept_from_open_to_open_until_the_inode_is_forgotten() {
    with_deadline(|| {
        let mount = TestMount::with(dataset(), Setup { disable: BTreeSet::from([Feature::Passthrough]), ..Setup::default() });
        let (key, reads) = ("train/class01/0005.jpg", &mount.stats.reads.reads);
        mount.read(key).unwrap();
        let cold = reads.get();
        mount.read(key).unwrap();
        assert_eq!(reads.get(), cold, "the second read is the page cache's");
        let invalidator = mount.mounted.invalidator();
        assert!(invalidator.inval(fs::metadata(mount.path(key)).unwrap().ino()));
        while reads.get() == cold {
            assert!(mount.read(key).unwrap() == mount.bucket.body(key)); // until the thread has passed it on
        }
    });
}

#[test]
fn files_that_are_retired_and_forgotten_while_they_are_read_stay_whole() {
    with_deadline(|| {
        for (name, setup) in setups() {
            let mount = TestMount::with(dataset(), setup);
            let objects = mount.bucket.listing();
            let reading = AtomicUsize::new(6);
            thread::scope(|scope| {
                for first in 0..6 {
                    let (mount, objects, reading) = (&mount, &objects, &reading);
                    scope.spawn(move || {
                        for n in 0..200 {
                            let key = &*objects[(first * 13 + n * 7) % objects.len()].key;
                            assert!(mount.read(key).unwrap() == mount.bucket.body(key), "{name}: {key}");
                        }
                        reading.fetch_sub(1, SeqCst);
                    });
                }
                let invalidator = mount.mounted.invalidator();
                let inodes: Vec<_> = objects.iter().map(|object| fs::metadata(mount.path(&object.key)).unwrap().ino()).collect();
                for n in (0..objects.len()).cycle() {
                    if reading.load(SeqCst) == 0 {
                        break;
                    }
                    mount.door.forget(&objects[n].version());
                    invalidator.inval(inodes[n]);
                    thread::yield_now();
                }
            });
            assert_eq!(mount.stats.reads.errors.get(), 0, "{name}");
        }
    });
}

#[test]
fn a_reader_that_waits_can_be_killed() {
    with_deadline(|| {
        let bucket = Bucket::of([("stuck".to_owned(), body(4, 5000))]);
        bucket.hold(true);
        let mut setup = Setup::default();
        setup.fs.open_hold = Duration::from_millis(10);
        let mount = TestMount::with(bucket, setup);
        let mut reader = std::process::Command::new("cat").arg(mount.path("stuck")).spawn().unwrap();
        while mount.stats.reads.opens.get() == 0 {
            thread::yield_now();
        }
        reader.kill().unwrap();
        assert!(!reader.wait().unwrap().success());
    });
}

#[test]
fn a_panic_in_a_request_is_its_own_error_and_the_mount_goes_on() {
    with_deadline(|| {
        let mount = TestMount::with(dataset(), Setup { control_panics: true, ..Setup::default() });
        assert_eq!(mount.read(".belady/stats").map_err(|error| raw(&error)), Err(Some(Errno::IO.raw_os_error())));
        assert_eq!(mount.stats.panics.get(), 1);
        assert_eq!(mount.read("train/class01/0001.jpg").unwrap().len(), 1);
    });
}

#[test]
fn a_name_longer_than_any_file_system_has_is_told_so() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let error = |length: usize| fs::metadata(mount.path(&"é".repeat(length / 2))).map_err(|error| raw(&error)).err();
        assert_eq!(error(254), Some(Some(Errno::NOENT.raw_os_error())));
        assert_eq!(error(256), Some(Some(Errno::NAMETOOLONG.raw_os_error())), "255 bytes are the most, not 255 letters");
        assert_eq!(error(1024), Some(Some(Errno::NAMETOOLONG.raw_os_error())));
    });
}

#[test]
fn the_mount_table_names_us() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let at = mount.root().canonicalize().unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == at.to_str()).unwrap();
        let fields: Vec<_> = line.split(' ').collect();
        assert_eq!((fields[0], fields[2]), ("test://bucket%2Cwith%2Ccommas", "fuse.belady"));
        assert!(fields[3].split(',').any(|option| option == "ro"), "{line}");
        if rustix::process::getuid().is_root() {
            let device = fs::metadata(&at).unwrap().dev();
            let bdi = format!("/sys/class/bdi/{}:{}/read_ahead_kb", rustix::fs::major(device), rustix::fs::minor(device));
            assert_eq!(fs::read_to_string(bdi).unwrap().trim(), "1024");
        }
    });
}

#[test]
fn nothing_is_left_open_after_many_opens_in_many_threads() {
    with_deadline(|| {
        let mount = TestMount::of(dataset());
        let keys: Vec<_> = mount.bucket.listing().iter().map(|object| object.key.to_string()).collect();
        thread::scope(|scope| {
            for first in 0..16 {
                let (keys, mount) = (&keys, &mount);
                scope.spawn(move || {
                    for n in 0..keys.len() {
                        let key = &keys[(first * 7 + n) % keys.len()];
                        assert!(mount.read(key).unwrap() == mount.bucket.body(key), "{key}");
                    }
                });
            }
        });
        assert_eq!(mount.stats.reads.errors.get(), 0);
        while mount.fs.open_handles() > 0 {
            thread::yield_now(); // the kernel tells of a close when it gets to it; with_deadline bounds this
        }
        mount.end();
    });
}
