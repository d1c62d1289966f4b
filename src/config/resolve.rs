//! Layers → [`Settings`]: for each key the strongest layer that has it wins, and every value remembers where it came from.
//!
//! All errors are collected: a user who wrote three wrong things is told three things. Each error names the place (flag, variable, file) as
//! the user wrote it, the cause and the remedy.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::cli::MountArgs;
use super::keys::{KEYS, Kind, Layer};
use super::machine::Machine;
use super::{Orders, Settings, StoreSettings, TierSettings, default_disk, default_of, file, mountpoint, values};
use crate::order::spec::OrderSpec;
use crate::types::rule::NameFile;
use crate::types::{ByteSize, SampleRule};

/// Name of the tier of `--cache-dir`.
const DISK_TIER: &str = "disk";
/// Name of the memory tier.
const MEMORY_TIER: &str = "memory";

/// The variables other S3 programs read, too: weaker than our file, which was written for us. Credentials are not among them.
const AWS_VARIABLES: [(&str, &[&str]); 3] = [
    ("endpoint_url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ("ca_bundle", &["AWS_CA_BUNDLE"]),
];

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag,
    /// Name of the variable.
    Environment(String),
    File(PathBuf),
    Default,
}

impl Origin {
    /// How a user finds the value of `key` again.
    fn place(&self, key: &str) -> String {
        match self {
            Self::Flag | Self::Default => format!("--{}", key.replace('_', "-")),
            Self::Environment(variable) => variable.clone(),
            Self::File(path) => format!("{key} in {}", path.display()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A key with its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub name: &'static str,
    pub kind: Kind,
    /// As texts a flag would take; none, or one empty: not set.
    pub values: Vec<String>,
    pub origin: Origin,
}

/// Everything a user said, strongest first.
#[derive(Clone, Debug, Default)]
pub struct Layers(Vec<(Origin, Layer)>);

impl Layers {
    /// Reads arguments, environment and file.
    ///
    /// # Errors
    /// The file cannot be read or understood: all its errors.
    pub fn gather(args: &MountArgs, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut layers = vec![(Origin::Flag, args.options.layer())];
        for key in KEYS {
            let name = format!("BELADY_{}", key.name.to_ascii_uppercase());
            if let Some(value) = env(&name) {
                layers.push((Origin::Environment(name), Layer::from([(key.name, vec![value])])));
            }
        }
        let said = args.config.clone().map(|path| ("--config", path));
        if let Some((place, path)) = said.or_else(|| env("BELADY_CONFIG").map(|path| ("BELADY_CONFIG", path.into()))) {
            let name = path.display().to_string();
            let text = fs::read_to_string(&path).map_err(|error| vec![format!("{place} {name}: {error}")])?;
            layers.push((Origin::File(path), file::parse(&text, &name)?));
        }
        for (key, names) in AWS_VARIABLES {
            if let Some((name, value)) = names.iter().find_map(|name| env(name).map(|value| (*name, value))) {
                layers.push((Origin::Environment(name.to_owned()), Layer::from([(key, vec![value])])));
            }
        }
        Ok(Self(layers))
    }

    /// Only a file's text: for the tests of `configs/`.
    ///
    /// # Errors
    /// All errors of the file.
    pub fn from_file(text: &str, name: &str) -> Result<Self, Vec<String>> {
        Ok(Self(vec![(Origin::File(name.into()), file::parse(text, name)?)]))
    }

    fn find(&self, key: &str) -> Option<(Vec<String>, Origin)> {
        self.0.iter().find_map(|(origin, layer)| layer.get(key).map(|values| (values.clone(), origin.clone())))
    }
}

/// Collects values and errors.
struct Resolver<'a> {
    layers: Layers,
    machine: &'a Machine,
    effective: Vec<Effective>,
    errors: Vec<String>,
}

impl Resolver<'_> {
    /// The texts of a key and how to call the place they stand in.
    fn texts(&mut self, name: &'static str) -> (Vec<String>, String) {
        let key = super::keys::find(name).expect("only names of KEYS are asked for");
        let (values, origin) = self.layers.find(name).unwrap_or_else(|| (vec![default_of(name, self.machine)], Origin::Default));
        let place = origin.place(name);
        self.effective.push(Effective { name, kind: key.kind, values: values.clone(), origin });
        (values, place)
    }

    /// A value that may be unset: empty is not set.
    fn optional<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let (values, place) = self.texts(name);
        let text = match values.as_slice() {
            [] => return None,
            [text] if text.is_empty() => return None,
            [text] => text,
            _ => {
                self.errors.push(format!("{place}: takes one value, not a list"));
                return None;
            }
        };
        parse(text).map_err(|reason| self.errors.push(format!("{place}: {reason}"))).ok()
    }

    /// A value that always is; an empty one, or one that does not parse, counts as the default.
    fn value<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.optional(name, &parse).unwrap_or_else(|| parse(&default_of(name, self.machine)).expect("defaults parse: there is a test"))
    }

    fn list<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let (values, place) = self.texts(name);
        values::list(&values, parse).unwrap_or_else(|errors| {
            self.errors.extend(errors.into_iter().map(|reason| format!("{place}: {reason}")));
            Vec::new()
        })
    }
}

/// Settings of a mount of `url` on `dir`.
///
/// # Errors
/// All that is wrong, each a line.
pub fn resolve(url: &str, dir: &Path, layers: Layers, machine: &Machine) -> Result<Settings, Vec<String>> {
    let mut r = Resolver { layers, machine, effective: Vec::new(), errors: Vec::new() };
    let mountpoint = mountpoint::real(dir).unwrap_or_else(|error| {
        r.errors.push(error);
        dir.to_owned()
    });
    let store = store(&mut r);
    let memory = r.value("memory", |text| match text {
        "auto" => values::size(&default_of("memory", machine)),
        _ => values::size(text).and_then(|size| if size.0 > machine.memory_total { Err(too_much(text, machine)) } else { Ok(size) }),
    });
    let tiers = tiers(&mut r, url, &mountpoint);
    let orders = orders(&mut r);
    let mut settings = Settings {
        url: url.to_owned(),
        store,
        memory,
        tiers,
        orders,
        expect_manifest: r.optional("expect_manifest", values::manifest_id),
        peek: r.value("peek", values::switch),
        search_threads: r.value("search_threads", |text| if text == "auto" { Ok(None) } else { values::count(text).map(Some) }),
        search_exhaustive: r.value("search_exhaustive", values::switch),
        record_opens: r.optional("record_opens", values::path),
        on_change: r.value("on_change", values::on_change),
        verify: r.value("verify", values::verify),
        read_deadline: r.value("read_deadline", values::duration),
        max_bandwidth: Some(r.value("max_bandwidth", values::size)).filter(|limit| limit.0 > 0),
        max_requests: r.value("max_requests", values::count),
        max_connections: r.value("max_connections", values::count),
        allow_other: r.value("allow_other", values::switch),
        uid: r.value("uid", values::id),
        gid: r.value("gid", values::id),
        file_mode: r.value("file_mode", values::mode),
        dir_mode: r.value("dir_mode", values::mode),
        listen: r.optional("listen", values::listen).flatten(),
        disable_kernel: r.list("disable_kernel", values::kernel_feature),
        foreground: r.value("foreground", values::switch),
        log_level: r.value("log_level", values::log_level),
        log_file: r.optional("log_file", values::path),
        runtime_dir: machine.runtime_dir.clone(),
        effective: Vec::new(),
        mountpoint,
    };
    if settings.allow_other && !machine.is_root() && !machine.user_allow_other {
        r.errors.push(
            "--allow-other: users may share a mount only if /etc/fuse.conf has the line user_allow_other: add it, or leave the option out"
                .into(),
        );
    }
    settings.effective = r.effective;
    if r.errors.is_empty() { Ok(settings) } else { Err(r.errors) }
}

fn too_much(size: &str, machine: &Machine) -> String {
    format!("{size:?} is more than the {} of this machine: leave memory for the programs that read", ByteSize(machine.memory_total))
}

/// The directory of a `file://` address, whatever else is wrong with it.
fn source_directory(url: &str) -> Option<&Path> {
    let (scheme, path) = url.split_at_checked("file://".len())?;
    scheme.eq_ignore_ascii_case("file://").then(|| Path::new(path))
}

fn store(r: &mut Resolver<'_>) -> StoreSettings {
    let plain = |text: &str| Ok(text.to_owned());
    let store = StoreSettings {
        endpoint_url: r.optional("endpoint_url", values::endpoint_url),
        region: r.optional("region", plain),
        profile: r.optional("profile", plain),
        credentials_file: r.optional("credentials_file", values::path),
        env_file: r.optional("env_file", values::path),
        no_sign_request: r.value("no_sign_request", values::switch),
        requester_pays: r.value("requester_pays", values::switch),
        force_path_style: r.value("force_path_style", |text| if text == "auto" { Ok(None) } else { values::switch(text).map(Some) }),
        ca_bundle: r.optional("ca_bundle", values::path),
    };
    let named = [
        ("profile", store.profile.is_some()),
        ("credentials-file", store.credentials_file.is_some()),
        ("env-file", store.env_file.is_some()),
    ];
    if let Some((name, _)) = named.iter().find(|(_, given)| *given && store.no_sign_request) {
        r.errors.push(format!("--no-sign-request: sends no credentials, so --{name} has no meaning beside it: leave one of them out"));
    }
    store
}

fn tiers(r: &mut Resolver<'_>, url: &str, mountpoint: &Path) -> Vec<TierSettings> {
    let cache_dir = r.optional("cache_dir", values::path);
    let disk = r.value("disk", |text| if text == "auto" { Ok(None) } else { values::size(text).map(Some) });
    let mut tiers: Vec<TierSettings> = Vec::new();
    match (cache_dir, disk) {
        (Some(path), Some(capacity)) => tiers.push(TierSettings { name: DISK_TIER.into(), path, capacity, automatic: false }),
        (Some(path), None) => match default_disk(r.machine, &path) {
            Ok(capacity) => tiers.push(TierSettings { name: DISK_TIER.into(), path, capacity, automatic: true }),
            Err(reason) => r.errors.push(format!("--cache-dir {}: {reason}", path.display())),
        },
        (None, Some(ByteSize(1..))) => r.errors.push("--disk: needs --cache-dir, the directory to keep the files in".into()),
        (None, _) => {}
    }
    let further = r.list("tier", values::tier);
    tiers.extend(further.into_iter().map(|(name, path, capacity)| TierSettings { name, path, capacity, automatic: false }));
    for (at, tier) in tiers.iter().enumerate() {
        if tier.name == MEMORY_TIER || tiers[..at].iter().any(|other| other.name == tier.name) {
            r.errors.push(format!("--tier {}: the name is taken by another tier: choose another", tier.name));
        }
        if let Some(other) =
            tiers[..at].iter().find(|other| mountpoint::within(&tier.path, &other.path) || mountpoint::within(&other.path, &tier.path))
        {
            r.errors.push(format!(
                "--tier {}: {} and {} of tier {} lie in each other: give each tier a directory of its own",
                tier.name,
                tier.path.display(),
                other.path.display(),
                other.name
            ));
        }
        if mountpoint::within(&tier.path, mountpoint) || mountpoint::within(mountpoint, &tier.path) {
            r.errors.push(format!(
                "the cache directory {} and the mount point {} lie in each other: choose a cache directory elsewhere",
                tier.path.display(),
                mountpoint.display()
            ));
        }
        if let Some(source) = source_directory(url).filter(|source| mountpoint::within(&tier.path, source)) {
            r.errors.push(format!(
                "the cache directory {} lies in the directory {} to be mounted, which would show it: choose a cache directory elsewhere",
                tier.path.display(),
                source.display()
            ));
        }
    }
    // Zero is «off»; but a disk that is full now may hold what an earlier run left.
    tiers.retain(|tier| tier.capacity.0 > 0 || tier.automatic);
    tiers
}

fn orders(r: &mut Resolver<'_>) -> Orders {
    /// One part: a specification, or one of the words that stand alone.
    enum Said {
        Auto,
        None,
        Spec(Box<OrderSpec>),
    }
    let said = r.list("order", |text| match text {
        "auto" => Ok(Said::Auto),
        "none" => Ok(Said::None),
        _ => text
            .parse::<OrderSpec>()
            .map_err(|error| {
                // The place is named already.
                error.to_string().trim_start_matches("order: ").to_owned()
            })
            .and_then(|mut spec| {
                if let SampleRule::Names(_, NameFile::Local(list)) = &mut spec.files {
                    *list = values::path(&list.to_string_lossy())?;
                }
                Ok(Said::Spec(Box::new(spec)))
            }),
    });
    let alone = said.len() > 1 && said.iter().any(|said| !matches!(said, Said::Spec(_)));
    if alone {
        r.errors.push("--order: auto and none stand alone: leave them out beside a declared order".into());
    }
    let mut specs = Vec::new();
    for one in said {
        match one {
            Said::Auto => {}
            Said::None => return Orders::None,
            Said::Spec(spec) => specs.push(*spec),
        }
    }
    crate::order::spec::make_ids_distinct(&mut specs);
    if specs.is_empty() { Orders::Auto } else { Orders::Declared(specs) }
}

/// What only the file system can say: the files named can be read, the directories made and written.
///
/// # Errors are the result
/// All that is wrong, each a line; empty when nothing is.
#[must_use]
pub fn check_files(settings: &Settings) -> Vec<String> {
    let store = &settings.store;
    let mut errors = Vec::new();
    let place = |key: &str| {
        let said = settings.effective.iter().find(|effective| effective.name == key);
        said.map_or(&Origin::Default, |effective| &effective.origin).place(key)
    };
    for (key, path) in [("credentials_file", &store.credentials_file), ("env_file", &store.env_file), ("ca_bundle", &store.ca_bundle)] {
        if let Some(path) = path
            && let Err(error) = fs::File::open(path)
        {
            errors.push(format!("{} {}: {error}", place(key), path.display()));
        }
    }
    for tier in &settings.tiers {
        let writable = fs::create_dir_all(&tier.path).and_then(|()| {
            let probe = tier.path.join(format!(".belady-probe-{}", std::process::id()));
            fs::File::create(&probe).and_then(|_| fs::remove_file(&probe))
        });
        if let Err(error) = writable {
            let place = place(if tier.name == DISK_TIER { "cache_dir" } else { "tier" });
            errors.push(format!("{place} {}: cannot be written ({error}): choose a directory this user may write", tier.path.display()));
        }
    }
    for (key, path) in [("log_file", &settings.log_file), ("record_opens", &settings.record_opens)] {
        if let Some(path) = path
            && let Err(error) = fs::OpenOptions::new().append(true).create(true).open(path)
        {
            errors.push(format!("{} {}: cannot be written ({error})", place(key), path.display()));
        }
    }
    errors
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
