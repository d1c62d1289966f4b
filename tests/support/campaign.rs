//! Runs of programs of all kinds, for «right or silent»: orders that nobody can know, walks, planted orders under noise. Pure: a number names
//! a run, and it is the same each time.

use std::time::Duration;

use belady::infer::verify::Logged;
use belady::order::mt19937::Mt19937;
use belady::order::spec::OrderSpec;
use belady::order::torch::randperm;

use super::opens::{Die, beside, buffered, interleaved, loaders, pool};

/// What may be said of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Truth {
    /// Nothing.
    Unknown,
    /// It is read in the order of the listing, or a part of it is.
    Listing,
    /// Made by this order.
    Planted(String),
}

/// Opens of one run.
pub(crate) struct Run {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The listing.
    pub(crate) files: Vec<String>,
    pub(crate) opens: Vec<Logged>,
    pub(crate) truth: Truth,
    /// Opens that are not the readers': probes, other programs, repeats.
    pub(crate) strays: usize,
}

type Opens = Vec<(u32, String)>;
/// Opens of samples, as programs of a kind make them.
type Kind = (&'static str, fn(&Tree, &mut Die) -> Vec<(u32, u32)>);
/// Opens of files, what may be said of them, and strays among them.
type Walk = (&'static str, fn(&Tree, &mut Die) -> (Opens, Truth, usize));

/// A dataset, in the order of its listing: each file with its directory's number.
struct Tree {
    train: Vec<(usize, String)>,
    val: Vec<(usize, String)>,
}

/// Between 50 and 5,000 samples, small ones more often.
fn size(most: usize, die: &mut Die) -> usize {
    let octave = die.below(20);
    let of_octave = [120, 250, 500, 1_000, 2_000, 5_000][[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5][octave]];
    die.between(of_octave * 2 / 5 + 2, of_octave).min(most)
}

impl Tree {
    fn new(n: usize, die: &mut Die) -> Self {
        let classes = die.pick(&[1, 2, 3, 5, 10, 20, 100]).min(n / 8).max(1);
        let (even, names, base) = (die.falls(50), die.below(3), die.pick(&["", "data/", "data/images/"]));
        let mut part = |name: &str, n: usize| {
            let mut files: Vec<(usize, String)> = (0..n)
                .map(|i| {
                    let class = if even { i % classes } else { die.below(classes).min(die.below(classes)) };
                    let folder = if classes == 1 { String::new() } else { format!("n{class:03}/") };
                    let file = match names {
                        0 => format!("img_{i:06}.png"),
                        // numbers without zeros: their order is not the listing's
                        1 => format!("{i}.jpg"),
                        _ => format!("{:08x}_{i}.JPEG", (i as u32).wrapping_mul(0x9e37_79b1)),
                    };
                    (class, format!("{base}{name}{folder}{file}"))
                })
                .collect();
            files.sort_by(|a, b| a.1.cmp(&b.1));
            files
        };
        let parted = n >= 100 && !n.is_multiple_of(3);
        if parted { Self { train: part("train/", n), val: part("val/", n / 5) } } else { Self { train: part("", n), val: Vec::new() } }
    }

    fn files(&self) -> Vec<String> {
        self.train.iter().chain(&self.val).map(|file| file.1.clone()).collect()
    }

    fn n(&self) -> usize {
        self.train.len()
    }

    fn named(&self, opens: Vec<(u32, u32)>) -> Opens {
        opens.into_iter().map(|(process, sample)| (process, self.train[sample as usize].1.clone())).collect()
    }

    /// Samples by directory, in listing order.
    fn folders(&self) -> Vec<Vec<u32>> {
        let mut folders: Vec<Vec<u32>> = Vec::new();
        for (sample, file) in (0u32..).zip(&self.train) {
            if sample == 0 || self.train[sample as usize - 1].0 != file.0 {
                folders.push(Vec::new());
            }
            folders.last_mut().expect("pushed above").push(sample);
        }
        folders
    }
}

/// A loader as scripts have it: none, 1, 2, 4 or 8 workers.
#[derive(Clone, Copy)]
struct Loader {
    workers: usize,
    batch: usize,
    persistent: bool,
}

impl Loader {
    fn any(n: usize, die: &mut Die) -> Self {
        let batch = die.pick(&[1, 4, 16, 32, 64, 256]).min(n / 4);
        Self { workers: die.pick(&[0, 1, 2, 4, 8]), batch, persistent: die.falls(30) }
    }

    fn read(self, epoch: u32, order: Vec<u32>, die: &mut Die) -> Vec<(u32, u32)> {
        self.ranks(epoch, &[order], die)
    }

    fn ranks(self, epoch: u32, ranks: &[Vec<u32>], die: &mut Die) -> Vec<(u32, u32)> {
        let first = if self.persistent || self.workers == 0 { 1_000 } else { 1_000 + 100 * epoch };
        loaders(ranks, self.workers.max(1), self.batch, first, die)
    }
}

/// Several epochs of a loader over orders that `order` makes.
fn epochs(n: usize, die: &mut Die, mut order: impl FnMut(u32, &mut Die) -> Vec<u32>) -> Vec<(u32, u32)> {
    let (loader, count) = (Loader::any(n, die), die.between(1, 3));
    let mut opens = Vec::new();
    for epoch in 0..u32::try_from(count).expect("few") {
        let order = order(epoch, die);
        opens.extend(if die.falls(15) { pool(&order, die.pick(&[2, 4, 16]), 1_000, die) } else { loader.read(epoch, order, die) });
    }
    opens
}

/// Sizes of n samples, as lengths of texts or sums of losses are.
fn weights(n: usize, die: &mut Die) -> Vec<usize> {
    (0..n).map(|_| 1 + die.below(30) * die.below(30) * die.below(30)).collect()
}

fn drawn(weights: &[usize], count: usize, die: &mut Die) -> Vec<u32> {
    let mut sums = Vec::with_capacity(weights.len());
    let mut total = 0;
    for weight in weights {
        total += weight;
        sums.push(total);
    }
    (0..count)
        .map(|_| u32::try_from(sums.partition_point(|&sum| sum <= die.below(total))).expect("small").min(weights.len() as u32 - 1))
        .collect()
}

/// Orders that cannot be known.
const UNKNOWN: [Kind; 14] = [
    ("entropy", |tree, die| epochs(tree.n(), die, |_, die| die.shuffled(tree.n()))),
    ("entropy of each rank", |tree, die| {
        let (loader, ranks) = (Loader::any(tree.n(), die), die.between(2, 8));
        (0..2)
            .flat_map(|epoch| {
                let orders: Vec<Vec<u32>> = (0..ranks).map(|_| die.shuffled(tree.n())).collect();
                loader.ranks(epoch, &orders, die)
            })
            .collect()
    }),
    ("entropy in a pool", |tree, die| {
        let threads = die.pick(&[2, 4, 8, 16, 32]);
        (0..2).flat_map(|_| pool(&die.shuffled(tree.n()), threads, 1_000, die)).collect()
    }),
    ("buffer over the listing", |tree, die| {
        let (size, listing) = (die.between(10, tree.n() / 2), (0..tree.n() as u32).collect::<Vec<_>>());
        epochs(tree.n(), die, |_, die| buffered(&listing, size, die))
    }),
    ("buffer over shuffled shards", |tree, die| {
        let size = die.between(10, tree.n() / 2);
        epochs(tree.n(), die, |_, die| {
            let mut shards = tree.folders();
            die.shuffle(&mut shards);
            buffered(&shards.concat(), size, die)
        })
    }),
    ("interleave, shuffled", |tree, die| {
        let (cycle, block, size) = (die.between(2, 16), die.between(1, 16), die.between(10, tree.n() / 2));
        epochs(tree.n(), die, |_, die| {
            let mut shards: Vec<Vec<u32>> =
                tree.folders().iter().flat_map(|folder| folder.chunks(64).map(<[u32]>::to_vec).collect::<Vec<_>>()).collect();
            die.shuffle(&mut shards);
            let list = interleaved(&shards, cycle, block);
            if die.falls(50) { buffered(&list, size, die) } else { list }
        })
    }),
    ("weighted", |tree, die| {
        let weights = weights(tree.n(), die);
        epochs(tree.n(), die, |_, die| drawn(&weights, tree.n(), die))
    }),
    ("importance", |tree, die| {
        let mut weights = weights(tree.n(), die);
        epochs(tree.n(), die, |_, die| {
            (0..10)
                .flat_map(|_| {
                    for _ in 0..tree.n() / 4 {
                        let at = die.below(tree.n());
                        weights[at] = 1 + die.below(10) * weights[at] % 60_000;
                    }
                    drawn(&weights, tree.n() / 10, die)
                })
                .collect()
        })
    }),
    ("database, any row", |tree, die| {
        let processes = die.between(1, 4);
        (0..2 * tree.n()).map(|_| (1_000 + die.below(processes) as u32, die.below(tree.n()) as u32)).collect()
    }),
    ("database, zipf", |tree, die| {
        let rows = die.shuffled(tree.n());
        (0..2 * tree.n())
            .map(|_| {
                let rank = tree.n() / (1 + die.below(tree.n())) - 1;
                (1_000 + die.below(3) as u32, rows[rank])
            })
            .collect()
    }),
    ("database, ranges", |tree, die| {
        let mut opens = Vec::new();
        while opens.len() < 2 * tree.n() {
            let (from, process) = (die.below(tree.n()), 1_000 + die.below(3) as u32);
            let to = (from + die.between(3, 60)).min(tree.n());
            opens.extend((from..to).map(|row| (process, row as u32)));
        }
        opens
    }),
    ("database, tree", |tree, die| {
        // root, an inner page, a leaf and its neighbours
        let n = tree.n();
        let mut opens = Vec::new();
        while opens.len() < 3 * n {
            let (process, leaf) = (1_000 + die.below(2) as u32, die.between(n / 10 + 1, n - 1));
            opens.extend([0, leaf / 40 + 1, leaf].map(|page| (process, page as u32)));
            opens.extend((leaf + 1..(leaf + 1 + die.below(6)).min(n)).map(|page| (process, page as u32)));
        }
        opens
    }),
    ("balanced classes", |tree, die| {
        let folders = tree.folders();
        epochs(tree.n(), die, |_, die| {
            let mut left: Vec<Vec<u32>> = folders.clone();
            left.iter_mut().for_each(|folder| die.shuffle(folder));
            (0..tree.n())
                .map(|k| {
                    let class = if tree.n() % 2 == 0 { k % left.len() } else { die.below(left.len()) };
                    left[class].pop().unwrap_or_else(|| die.pick(&folders[class]))
                })
                .collect()
        })
    }),
    ("buckets of lengths", |tree, die| {
        let (lengths, batch) = (weights(tree.n(), die), die.pick(&[4, 16, 32]));
        epochs(tree.n(), die, |_, die| {
            let mut order = die.shuffled(tree.n());
            for pool in order.chunks_mut(batch * 20) {
                pool.sort_by_key(|&sample| lengths[sample as usize]);
            }
            let mut batches: Vec<Vec<u32>> = order.chunks(batch).map(<[u32]>::to_vec).collect();
            die.shuffle(&mut batches);
            batches.concat()
        })
    }),
];

/// Walks: opens, whether they are the listing's order, and strays among them.
const WALKS: [Walk; 10] = [
    ("one after the other", |tree, _| (walk(tree.files(), 7), Truth::Listing, 0)),
    ("the training part", |tree, _| (walk(tree.train.iter().map(|file| file.1.clone()), 7), Truth::Listing, 0)),
    ("breaks off", |tree, die| (walk(tree.files().into_iter().take(die.between(8, tree.n())), 7), Truth::Listing, 0)),
    ("directories in another order", |tree, die| {
        let files = other_folders(tree, die);
        let truth = if files.is_sorted() { Truth::Listing } else { Truth::Unknown };
        (walk(files, 7), truth, 0)
    }),
    ("directories backwards", |tree, _| {
        let mut folders = tree.folders();
        folders.reverse();
        let order = if folders.len() == 1 { folders[0].iter().rev().copied().collect() } else { folders.concat() };
        (tree.named(order.into_iter().map(|sample| (7, sample)).collect()), Truth::Unknown, 0)
    }),
    ("two at once", |tree, die| (beside(walk(tree.files(), 7), walk(tree.files(), 8), die), Truth::Listing, tree.files().len())),
    ("one after another", |tree, _| {
        let all = [7, 8].into_iter().flat_map(|process| walk(tree.files(), process)).collect();
        (all, Truth::Listing, 0)
    }),
    ("beside training on entropy", |tree, die| {
        let training = tree.named(epochs(tree.n(), die, |_, die| die.shuffled(tree.n())));
        (beside(training, walk(tree.files(), 7), die), if tree.val.is_empty() { Truth::Unknown } else { Truth::Listing }, 0)
    }),
    ("by four at once", |tree, die| {
        // xargs -n -P4
        let (files, each) = (tree.files(), die.pick(&[16, 64, 128]));
        let mut waiting: std::collections::VecDeque<Opens> =
            files.chunks(each).zip(20u32..).map(|(chunk, process)| walk(chunk.to_vec(), process)).collect();
        let mut running: Vec<std::collections::VecDeque<(u32, String)>> = Vec::new();
        let mut opens = Vec::new();
        loop {
            running.retain(|one| !one.is_empty());
            while running.len() < 4
                && let Some(next) = waiting.pop_front()
            {
                running.push(next.into());
            }
            if running.is_empty() {
                return (opens, Truth::Listing, 0);
            }
            let at = die.below(running.len());
            opens.extend(running[at].pop_front());
        }
    }),
    ("some kinds of files only", |tree, die| {
        // beside each sample a text: only one of both is read, or all but every so many-th
        let skipped = die.between(2, 6);
        (walk(tree.files().into_iter().enumerate().filter(|(k, _)| k % skipped != 1).map(|(_, file)| file), 7), Truth::Listing, 0)
    }),
];

fn walk(files: impl IntoIterator<Item = String>, process: u32) -> Opens {
    files.into_iter().map(|file| (process, file)).collect()
}

fn other_folders(tree: &Tree, die: &mut Die) -> Vec<String> {
    let mut folders = tree.folders();
    if folders.len() == 1 {
        folders[0] = die.shuffled(tree.n());
    }
    die.shuffle(&mut folders);
    folders.concat().into_iter().map(|sample| tree.train[sample as usize].1.clone()).collect()
}

/// Samples numbered as `ImageFolder` does: directories, then names, as the listing has them.
fn planted(tree: &Tree, die: &mut Die) -> (Vec<(u32, u32)>, Truth) {
    let n = tree.n();
    let seed = die.pick(&[0u32, 1, 42, 123, 1234, 7]);
    let (loader, count) = (Loader::any(n, die), die.between(1, 3) as u32);
    let (text, orders): (String, Vec<Vec<Vec<u32>>>) = match die.below(6) {
        0 => (format!("numpy-legacy:seed={seed}:again=in-place"), Vec::new()),
        1 => (format!("python-shuffle:seed={seed}:again=permutation"), Vec::new()),
        2 => {
            let world = die.pick(&[2, 4, 8]).min(n / 8);
            let ranks = if die.falls(50) { 0..world } else { world - 1..world };
            let dealt = |epoch: u32| {
                let order = randperm(n as u32, &mut Mt19937::new(u64::from(seed) + u64::from(epoch)));
                let steps = n.div_ceil(world);
                ranks.clone().map(|rank| (0..steps).map(|step| order[(step * world + rank) % n]).collect()).collect()
            };
            ("torch-distributed".to_owned(), (0..count).map(dealt).collect())
        }
        _ => {
            let offset = die.below(8) as u64;
            let order = |epoch: u32| {
                let mut generator = Mt19937::new(u64::from(seed));
                generator.skip(offset + 4 * u64::from(epoch));
                vec![randperm(n as u32, &mut Mt19937::new(u64::from(generator.random())))]
            };
            ("torch-random".to_owned(), (0..count).map(order).collect())
        }
    };
    let orders = if orders.is_empty() {
        let sampler = text.parse::<OrderSpec>().expect("a specification").sampler(n as u32).expect("an order");
        (0..count).map(|epoch| vec![sampler.order(u64::from(epoch)).places]).collect()
    } else {
        orders
    };
    let opens = (0u32..).zip(&orders).flat_map(|(epoch, ranks)| loader.ranks(epoch, ranks, die)).collect();
    (opens, Truth::Planted(text.split(':').next().expect("a kind").to_owned()))
}

/// What disturbs a planted order.
const NOISE: [&str; 6] = ["nothing", "2 % lost", "a probe", "a walk at once", "a pool", "pid 0"];

impl Run {
    /// Run `number` of the campaign `seed`, of so many samples at most: of twenty, eleven are orders that nobody knows, five are walks and four are planted orders.
    pub(crate) fn new(seed: u64, number: u64, most: usize) -> Self {
        let mut die = Die((seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            die.below(2);
        });
        let n = size(most, &mut die);
        let tree = Tree::new(n, &mut die);
        let round = usize::try_from(number / 20).expect("small");
        let (kind, mut opens, truth, mut strays) = match number % 20 {
            kind @ 0..11 => {
                let (name, make) = UNKNOWN[(kind as usize + 11 * round) % UNKNOWN.len()];
                (name.to_owned(), tree.named(make(&tree, &mut die)), Truth::Unknown, 0)
            }
            kind @ 11..16 => {
                let (name, make) = WALKS[(kind as usize - 11 + 5 * round) % WALKS.len()];
                let (opens, truth, strays) = make(&tree, &mut die);
                (format!("walk: {name}"), opens, truth, strays)
            }
            kind => {
                let noise = (kind as usize - 16 + 4 * round) % NOISE.len();
                let (mut opens, truth) = planted(&tree, &mut die);
                match noise {
                    4 => {
                        let threads = die.pick(&[2, 8, 16]);
                        let order: Vec<u32> = opens.iter().map(|open| open.1).collect();
                        opens = pool(&order, threads, 1_000, &mut die);
                    }
                    5 => opens.iter_mut().for_each(|open| open.0 = 0),
                    _ => {}
                }
                let mut opens = tree.named(opens);
                let mut strays = 0;
                match noise {
                    1 => opens.retain(|_| !die.falls(2)),
                    2 => {
                        opens.insert(0, (999, tree.train[0].1.clone()));
                        strays = 1;
                    }
                    3 => {
                        strays = tree.files().len();
                        opens = beside(opens, walk(tree.files(), 7), &mut die);
                    }
                    _ => {}
                }
                (format!("planted, {}", NOISE[noise]), opens, truth, strays)
            }
        };
        let mut noise = String::new();
        if number % 20 < 16 && die.falls(30) {
            match die.below(4) {
                0 => {
                    let lost = die.between(1, 5);
                    opens.retain(|_| !die.falls(lost));
                    noise = format!(", {lost} % lost");
                }
                1 => {
                    let before = opens.len();
                    opens = opens.into_iter().flat_map(|open| vec![open; if die.falls(10) { 2 } else { 1 }]).collect();
                    strays += opens.len() - before;
                    ", some twice".clone_into(&mut noise);
                }
                2 => {
                    opens.iter_mut().for_each(|open| open.0 = 0);
                    ", pid 0".clone_into(&mut noise);
                }
                _ => {
                    opens.splice(0..0, (0..die.between(1, 3)).map(|k| (999, tree.train[k].1.clone())));
                    strays += 3;
                    ", a probe".clone_into(&mut noise);
                }
            }
        }
        let pace = die.pick(&[100u64, 1_000, 5_000]);
        let opens = opens.into_iter().enumerate();
        let opens = opens.map(|(at, (process, path))| Logged { at: Duration::from_micros(pace * at as u64), process, path }).collect();
        let name = format!("{seed}/{number} {kind}{noise}, {n} files");
        Self { kind, name, files: tree.files(), opens, truth, strays }
    }

    /// The listing as a log.
    pub(crate) fn listing(&self) -> Vec<Logged> {
        self.files.iter().map(|path| Logged { at: Duration::ZERO, process: 0, path: path.clone() }).collect()
    }
}
