//! What the demo found: as a table for people, and as JSON with the same figures.

use std::fmt;

use serde::Serialize;

use super::reader::Measured;

/// One way of reading, and what it brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    pub files: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub files_per_second: f64,
    pub bytes_per_second: f64,
    /// Of one file, from its open (or request) to its last byte.
    pub latency_ms_p50: f64,
    pub latency_ms_p99: f64,
}

impl From<&Measured> for Speed {
    fn from(measured: &Measured) -> Self {
        Self {
            files: measured.files,
            bytes: measured.bytes,
            seconds: measured.elapsed.as_secs_f64(),
            files_per_second: measured.files_per_second(),
            bytes_per_second: measured.bytes_per_second(),
            latency_ms_p50: measured.p50.as_secs_f64() * 1e3,
            latency_ms_p99: measured.p99.as_secs_f64() * 1e3,
        }
    }
}

/// The reads without a mount.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlainRow {
    /// GETs at a time.
    pub connections: usize,
    #[serde(flatten)]
    pub speed: Speed,
    /// Of the client.
    pub cpu_ms_per_file: Option<f64>,
}

/// One epoch through the mount.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochRow {
    pub epoch: u64,
    #[serde(flatten)]
    pub speed: Speed,
    /// Accesses by what they found, as the mount counts them.
    pub accesses: Accesses,
    /// Part of the bytes that were here since an earlier epoch, and what the best possible cache of this size would have kept.
    pub retained_rate: f64,
    pub bound_retained_rate: Option<f64>,
    /// What the store was asked for while this epoch was read, as the store counted it.
    pub store_get: u64,
    pub store_list: u64,
    pub store_head: u64,
    pub store_bytes: u64,
    pub bound_store_bytes: Option<u64>,
    /// Of the mount's process; the reader's own is not in it.
    pub cpu_ms_per_file: Option<f64>,
}

/// Accesses and their bytes by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accesses {
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
    pub retained_bytes: u64,
    pub all_bytes: u64,
}

impl Accesses {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.retained + self.in_time + self.late + self.miss
    }

    /// Those since an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            retained: self.retained.saturating_sub(before.retained),
            in_time: self.in_time.saturating_sub(before.in_time),
            late: self.late.saturating_sub(before.late),
            miss: self.miss.saturating_sub(before.miss),
            retained_bytes: self.retained_bytes.saturating_sub(before.retained_bytes),
            all_bytes: self.all_bytes.saturating_sub(before.all_bytes),
        }
    }

    /// Part of the bytes that was retained.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn retained_rate(&self) -> f64 {
        if self.all_bytes == 0 { 0.0 } else { self.retained_bytes as f64 / self.all_bytes as f64 }
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub files: u64,
    pub dataset_bytes: u64,
    pub cache_bytes: u64,
    pub delay_ms: u64,
    pub threads: usize,
    pub order: String,
    pub plain: Vec<PlainRow>,
    pub epochs: Vec<EpochRow>,
    /// Files whose every byte was compared with the store's, after the timed epochs; all were equal, or there is no report.
    pub compared_files: u64,
    /// The sentences under the table.
    pub verdict: Vec<String>,
}

impl Report {
    /// One line of JSON.
    ///
    /// # Panics
    /// Never: all keys are strings.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists of them")
    }

    /// What a user should take from the table.
    #[must_use]
    pub fn judge(&self) -> Vec<String> {
        let mut verdict = Vec::new();
        let plain = |connections| self.plain.iter().find(|row| row.connections == connections).map(|row| row.speed.files_per_second);
        let last_plain = self.plain.last().map(|row| row.connections);
        if let (Some(cold), Some(one), Some(many)) = (self.epochs.first(), plain(1), last_plain.and_then(plain)) {
            verdict.push(format!(
                "the cold epoch ran at {:.2} x the rate of {} plain GETs at a time, and at {:.1} x that of one at a time",
                cold.speed.files_per_second / many,
                last_plain.unwrap_or_default(),
                cold.speed.files_per_second / one,
            ));
        }
        if let Some(last) = self.epochs.last().filter(|_| self.epochs.len() > 1) {
            let possible = last.bound_retained_rate.map_or_else(
                || "the mount gives no bound for it".to_owned(),
                |bound| format!("the bound for a cache of this size less its read-ahead is {:.1} %", bound * 100.0),
            );
            verdict
                .push(format!("the last epoch found {:.1} % of its bytes kept from earlier ones; {possible}", last.retained_rate * 100.0));
        }
        if let Some(last) = self.epochs.last() {
            let accesses = &last.accesses;
            verdict.push(format!("{} of its {} reads had to wait for the store", accesses.late + accesses.miss, accesses.total()));
        }
        // Without this, reads that the kernel's page cache answered would pass for the mount's.
        for row in self.epochs.iter().filter(|row| row.accesses.total() != row.speed.files) {
            verdict.push(format!(
                "in epoch {} the mount accounts for {} of {} reads: the others did not pass through it, or its counters are behind",
                row.epoch,
                row.accesses.total(),
                row.speed.files,
            ));
        }
        verdict.push(format!("{} files compared byte for byte with what the store holds: all equal", self.compared_files));
        verdict
    }
}

const LEGEND: &str = "\
retained: the file's bytes were here since an earlier epoch
in time:  fetched ahead of its use, complete before it was asked for; the reader did not wait
late:     still on its way when it was asked for; the reader waited for the rest of it
miss:     fetched because it was asked for; the reader waited for all of it
kept:     retained, as part of all bytes (bound: what Bélády's MIN keeps in the cache less the read-ahead's room, which is not always full:
          an epoch that leaves some of it unused beats the bound by a few percent)
GETs, MB: what the store itself counted; they include what was fetched ahead for the next epoch
CPU:      of the mount's process (for plain GETs: of the client), milliseconds per file
";

/// One line of the table; `cells` are its middle.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn row(f: &mut fmt::Formatter<'_>, name: &str, speed: &Speed, cells: [&str; 6], gets: u64, bytes: u64, cpu: Option<f64>) -> fmt::Result {
    let [retained, in_time, late, miss, kept, possible] = cells;
    let (files, rate, bytes) = (speed.files_per_second, speed.bytes_per_second / 1e6, bytes as f64 / 1e6);
    let cpu = cpu.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    write!(f, "{name:<36}{files:>9.0}{rate:>8.1}{retained:>10}{in_time:>9}{late:>6}{miss:>6}")?;
    writeln!(f, "{kept:>9}{possible:>12}{gets:>7}{bytes:>10.1}{cpu:>8}")
}

impl fmt::Display for Report {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        writeln!(
            f,
            "{} files, {:.1} MB, read whole by {} threads in the order of {}\nstore: first byte after {} ms; cache: {:.1} MB ({:.0} % of the files' bytes)\n",
            self.files,
            megabytes(self.dataset_bytes),
            self.threads,
            self.order,
            self.delay_ms,
            megabytes(self.cache_bytes),
            self.cache_bytes as f64 / self.dataset_bytes.max(1) as f64 * 100.0,
        )?;
        writeln!(
            f,
            "{:<36}{:>9}{:>8}{:>10}{:>9}{:>6}{:>6}{:>9}{:>12}{:>7}{:>10}{:>8}",
            "", "files/s", "MB/s", "retained", "in time", "late", "miss", "kept", "(bound)", "GETs", "store MB", "CPU ms"
        )?;
        for row in &self.plain {
            let part = if row.speed.files < self.files { format!(" ({} files)", row.speed.files) } else { String::new() };
            let name = format!("plain GETs, {} at a time{part}", row.connections);
            self::row(f, &name, &row.speed, [""; 6], row.speed.files, row.speed.bytes, row.cpu_ms_per_file)?;
        }
        for row in &self.epochs {
            let name = if row.epoch == 0 { "mount, epoch 0 (cold)".to_owned() } else { format!("mount, epoch {}", row.epoch) };
            let found = &row.accesses;
            let counts = [found.retained, found.in_time, found.late, found.miss].map(|count| count.to_string());
            let kept = format!("{:.1} %", row.retained_rate * 100.0);
            let bound = row.bound_retained_rate.map_or_else(|| "-".to_owned(), |bound| format!("{:.1} %", bound * 100.0));
            let cells = [&counts[0], &counts[1], &counts[2], &counts[3], &kept, &bound].map(String::as_str);
            self::row(f, &name, &row.speed, cells, row.store_get, row.store_bytes, row.cpu_ms_per_file)?;
        }
        write!(f, "\n{LEGEND}")?;
        for line in &self.verdict {
            write!(f, "\n=> {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn report() -> Report {
        let speed = |files_per_second| Speed {
            files: 100,
            bytes: 11_000_000,
            seconds: 1.0,
            files_per_second,
            bytes_per_second: 11e6,
            latency_ms_p50: 1.0,
            latency_ms_p99: 2.0,
        };
        let epoch = |epoch, retained, bound_retained_rate| EpochRow {
            epoch,
            speed: speed(900.0),
            accesses: Accesses {
                retained,
                in_time: 97 - retained,
                late: 2,
                miss: 1,
                retained_bytes: retained * 110_000,
                all_bytes: 11_000_000,
            },
            retained_rate: 0.0,
            bound_retained_rate,
            store_get: 100,
            store_list: 1,
            store_head: 0,
            store_bytes: 11_000_000,
            bound_store_bytes: None,
            cpu_ms_per_file: Some(0.25),
        };
        let mut report = Report {
            files: 100,
            dataset_bytes: 11_000_000,
            cache_bytes: 5_500_000,
            delay_ms: 20,
            threads: 4,
            order: "torch-distributed:seed=0".to_owned(),
            plain: vec![
                PlainRow { connections: 1, speed: speed(45.0), cpu_ms_per_file: None },
                PlainRow { connections: 64, speed: speed(1_000.0), cpu_ms_per_file: Some(0.05) },
            ],
            epochs: vec![epoch(0, 0, None), epoch(1, 48, Some(0.5))],
            compared_files: 100,
            verdict: Vec::new(),
        };
        for row in &mut report.epochs {
            row.retained_rate = row.accesses.retained_rate();
        }
        report.verdict = report.judge();
        report
    }

    #[test]
    fn the_verdict_compares_with_plain_gets_and_with_the_bound() {
        let verdict = report().verdict;
        assert!(verdict[0].contains("0.90 x the rate of 64") && verdict[0].contains("20.0 x"), "{}", verdict[0]);
        assert!(verdict[1].contains("48.0 %") && verdict[1].contains("50.0 %"), "{}", verdict[1]);
        assert!(verdict[2].starts_with("3 of its 100 reads"), "{}", verdict[2]);
        assert_eq!(verdict.len(), 4, "{verdict:?}");
    }

    #[test]
    fn reads_that_did_not_pass_through_the_mount_are_told() {
        let mut report = report();
        report.epochs[1].accesses.retained -= 7;
        assert!(
            report.judge().iter().any(|line| line.contains("in epoch 1 the mount accounts for 93 of 100 reads")),
            "{:?}",
            report.judge()
        );
    }

    #[test]
    fn the_table_has_its_columns_under_each_other() {
        let text = report().to_string();
        let table: Vec<&str> = text.lines().skip(3).take(5).collect();
        let width = table[0].len();
        assert!(table.iter().all(|line| line.len() == width), "{text}");
        assert!(table[0].ends_with("CPU ms") && table[3].contains("epoch 0 (cold)"), "{text}");
        for (word, row, value) in [
            ("files/s", 1, "45"),
            ("MB/s", 2, "11.0"),
            ("(bound)", 4, "50.0 %"),
            ("late", 3, "2"),
            ("GETs", 4, "100"),
            ("retained", 4, "48"),
        ] {
            let end = table[0].find(word).unwrap() + word.len();
            assert!(table[row][..end].ends_with(value), "{word}:\n{text}");
        }
    }

    #[test]
    fn json_has_the_same_figures() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
        assert_eq!(json["plain"][1]["files_per_second"], 1_000.0);
        assert_eq!(json["epochs"][1]["accesses"]["retained"], 48);
        assert_eq!(json["epochs"][1]["bound_retained_rate"], 0.5);
        assert_eq!(json["epochs"][0]["bound_retained_rate"], serde_json::Value::Null);
    }
}
