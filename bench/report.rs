//! Medians with their spread, and the page that shows them. Pure but for what it reads about the machine.

use std::fmt::{self, Display, Write};

use crate::Rate;
use crate::case::Case;
use crate::keys::Draw;

/// A median and the range that it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    median: f64,
    least: f64,
    most: f64,
}

impl Figures {
    /// The figures of nothing are no numbers.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
        Self { median: at(sorted.len() / 2), least: at(0), most: at(sorted.len().saturating_sub(1)) }
    }
}

/// The median, then least and most in brackets; the precision is that of the format.
impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        write!(f, "{:.places$} ({:.places$}–{:.places$})", self.median, self.least, self.most)
    }
}

/// What one server did in one round with as many calls as it could take.
#[derive(Clone, Copy, Debug)]
pub struct Saturated {
    /// Microseconds a call.
    pub cpu: f64,
    /// What its Redis used; microseconds a call.
    pub redis: f64,
    /// Calls a second.
    pub rate: f64,
}

/// What one server did in one round with calls at a fixed rate, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct AtRate {
    /// Calls a second.
    pub rate: f64,
    pub cpu: f64,
    /// What its Redis used.
    pub redis: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// Calls that were not answered as they were to be, in hundredths of all; the latencies are those of the others.
    pub failed: f64,
}

/// The rounds of each case, in the order of [`Case::ALL`]; the first is the unit.
pub struct Table<R>([Vec<R>; Case::ALL.len()]);

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }
}

impl<R: Copy> Table<R> {
    pub fn add(&mut self, case: Case, round: R) {
        let mut all = Case::ALL.iter().zip(&mut self.0);
        if let Some((_, rounds)) = all.find(|(known, _)| **known == case) {
            rounds.push(round);
        }
    }

    pub fn last_round(&self) -> Vec<R> {
        self.0.iter().filter_map(|rounds| rounds.last().copied()).collect()
    }

    /// Of the rounds of one case.
    pub fn median(&self, case: Case, of: fn(&R) -> f64) -> f64 {
        let mut all = Case::ALL.iter().zip(&self.0);
        let rounds = all.find(|(known, _)| **known == case).map(|(_, rounds)| rounds);
        Figures::of(&rounds.into_iter().flatten().map(of).collect::<Vec<_>>()).median
    }

    /// The cases that were measured.
    fn rows(&self) -> impl Iterator<Item = (&'static str, Row<'_, R>)> {
        let [unit, ..] = &self.0;
        let measured = Case::ALL.iter().zip(&self.0).filter(|(_, rounds)| !rounds.is_empty());
        measured.map(|(case, rounds)| (case.name(), Row { unit, rounds }))
    }
}

/// One server beside the unit.
struct Row<'a, R> {
    unit: &'a [R],
    rounds: &'a [R],
}

impl<R> Row<'_, R> {
    fn figures(&self, of: fn(&R) -> f64) -> Figures {
        Figures::of(&self.rounds.iter().map(of).collect::<Vec<_>>())
    }

    /// What this server is to the unit, round by round.
    fn ratio(&self, of: fn(&R) -> f64) -> Figures {
        Figures::of(
            &self.unit.iter().zip(self.rounds).map(|(unit, own)| of(own) / of(unit)).collect::<Vec<_>>(),
        )
    }
}

pub struct Report {
    /// The same message again and again, sent by h2load.
    pub same: Vec<(&'static str, Table<Saturated>)>,
    /// By clients that wait for answers.
    pub other: Vec<(&'static str, Table<Saturated>)>,
    pub rates: Vec<(Rate, Table<AtRate>)>,
    pub draw: Draw,
    /// Milliseconds.
    pub starts: Figures,
    pub bytes_per_key: f64,
    pub n_keys: usize,
}

impl Report {
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "# Performance\n")?;
        writeln!(page, "Written by `bench/run` on {}; clients and servers share them.\n", machine())?;
        writeln!(page, "{SERVERS}")?;
        writeln!(page, "## At saturation, the same message\n")?;
        writeln!(page, "`h2load -t 1 -c 2 -m 100`, the same message again and again.\n")?;
        write_saturation(page, &self.same)?;
        writeln!(page, "## At saturation, call by call\n")?;
        writeln!(
            page,
            "Two connections, 100 calls under way; each call of the cold keys asks for keys of its own."
        )?;
        writeln!(page, "The clients are slower than h2load, so all servers have less to do at a time.\n")?;
        write_saturation(page, &self.other)?;
        self.write_rates(page)?;
        writeln!(page, "## Start and memory\n")?;
        writeln!(page, "- From the start of the process to its first answer: {:.0} ms.", self.starts)?;
        write!(
            page,
            "- Resident memory at {} counters in memory: {:.0} bytes a counter, ",
            self.n_keys, self.bytes_per_key
        )?;
        writeln!(page, "its key (some 45 bytes here) included.\n")?;
        writeln!(page, "What a call costs in instructions is in [instructions.md](instructions.md).")
    }

    fn write_rates(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "## At a fixed rate\n")?;
        writeln!(
            page,
            "Calls are sent at their moments whatever the answers do, and a latency is counted from that"
        )?;
        writeln!(
            page,
            "moment. Two connections, one descriptor, {} where keys are drawn. 70 % is of what",
            self.draw.name()
        )?;
        writeln!(
            page,
            "the same server did call by call, on cores that the clients need, too: where calls fail, that was more than"
        )?;
        writeln!(page, "both together can do. Microseconds.\n")?;
        writeln!(
            page,
            "| rate | server | calls a second | CPU a call | ratio | Redis | p50 | p99 | p99.9 | ratio of p99.9 | failed |"
        )?;
        writeln!(page, "|---|---|---|---|---|---|---|---|---|---|---|")?;
        for (rate, table) in &self.rates {
            for (name, row) in table.rows() {
                let (cpu, ratio) = (row.figures(|round| round.cpu), row.ratio(|round| round.cpu));
                let (sent, redis) = (row.figures(|round| round.rate), row.figures(|round| round.redis));
                write!(page, "| {rate} | {name} | {:.0} | {cpu:.1} | {ratio:.2} ", sent.median)?;
                write!(page, "| {redis:.1} ")?;
                let (p50, p99) = (row.figures(|round| round.p50), row.figures(|round| round.p99));
                write!(page, "| {p50:.0} | {p99:.0} ")?;
                let (p999, ratio) = (row.figures(|round| round.p999), row.ratio(|round| round.p999));
                writeln!(
                    page,
                    "| {p999:.0} | {ratio:.2} | {:.1} % |",
                    row.figures(|round| round.failed).median
                )?;
            }
        }
        writeln!(page)
    }
}

fn write_saturation(page: &mut String, tables: &[(&'static str, Table<Saturated>)]) -> fmt::Result {
    writeln!(page, "| | server | CPU a call, µs | ratio | its Redis, µs | calls a second |")?;
    writeln!(page, "|---|---|---|---|---|---|")?;
    for (shape, table) in tables {
        for (name, row) in table.rows() {
            write!(page, "| {shape} | {name} | {:.1} ", row.figures(|round| round.cpu))?;
            let (ratio, rate) = (row.ratio(|round| round.cpu), row.figures(|round| round.rate));
            writeln!(page, "| {ratio:.2} | {:.1} | {rate:.0} |", row.figures(|round| round.redis))?;
        }
    }
    writeln!(page)
}

/// What stands before the figures.
const SERVERS: &str = "\
- *bare tonic*, the unit: tonic's own transport, one runtime and one listener a core, nothing else mounted, a constant answer
  (`examples/bare_tonic.rs`).
- *bare edge*: Tidegate's way of serving around a constant answer (`examples/bare.rs`).
- *memory*: the whole decision, counters in memory.
- *Redis, cold keys*: counters in a Redis beside it, every call asks for keys that were never asked for.
- *Redis, hot key*: every call asks for the same keys, far from their limits.
- *Redis, refused flood*: every call asks for the same keys, which are over their limits.

The servers take turns. A figure is the median of the rounds, a ratio the median of the ratios to the unit within a round; in
brackets the least and the most.
";

/// How many cores of which model.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{cores} cores of {}", model.map_or("an unknown model", |(_, model)| model))
}
