//! Medians with their spread, and the page that shows them. Pure but for what it reads about the machine.

use std::fmt::{self, Display, Write};

use crate::keys::Draw;
use crate::server::Kind;

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
    /// Calls a second.
    pub rate: f64,
}

/// What one server did in one round with calls at a fixed rate, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct AtRate {
    pub cpu: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

/// The rounds of each server, in the order of [`Kind::ALL`]; the first is the unit.
pub struct Table<R>([Vec<R>; Kind::ALL.len()]);

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }
}

impl<R: Copy> Table<R> {
    pub fn add(&mut self, server: usize, round: R) {
        if let Some(rounds) = self.0.get_mut(server) {
            rounds.push(round);
        }
    }

    pub fn last_round(&self) -> Vec<R> {
        self.0.iter().filter_map(|rounds| rounds.last().copied()).collect()
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Row<'_, R>)> {
        let [unit, ..] = &self.0;
        Kind::ALL.iter().zip(&self.0).map(|(kind, rounds)| (kind.name(), Row { unit, rounds }))
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
    pub saturation: Vec<(&'static str, Table<Saturated>)>,
    pub rates: Vec<(u32, Table<AtRate>)>,
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
        self.write_saturation(page)?;
        self.write_rates(page)?;
        writeln!(page, "## Start and memory\n")?;
        writeln!(page, "- From the start of the process to its first answer: {:.0} ms.", self.starts)?;
        write!(
            page,
            "- Resident memory at {} counters: {:.0} bytes a counter, ",
            self.n_keys, self.bytes_per_key
        )?;
        writeln!(page, "its key (some 45 bytes here) included.")
    }

    fn write_saturation(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "## At saturation\n")?;
        writeln!(page, "`h2load -t 1 -c 2 -m 100`, the same message again and again.\n")?;
        writeln!(page, "| | server | CPU a call, µs | ratio | calls a second |")?;
        writeln!(page, "|---|---|---|---|---|")?;
        for (shape, table) in &self.saturation {
            for (name, row) in table.rows() {
                write!(page, "| {shape} | {name} | {:.1} ", row.figures(|round| round.cpu))?;
                let (ratio, rate) = (row.ratio(|round| round.cpu), row.figures(|round| round.rate));
                writeln!(page, "| {ratio:.2} | {rate:.0} |")?;
            }
        }
        writeln!(page)
    }

    fn write_rates(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "## At a fixed rate\n")?;
        writeln!(
            page,
            "Calls are sent at their moments whatever the answers do, and a latency is counted from that"
        )?;
        writeln!(page, "moment. Two connections, one descriptor, {}. Microseconds.\n", self.draw.name())?;
        writeln!(
            page,
            "| calls a second | server | CPU a call | ratio | p50 | p99 | p99.9 | ratio of p99.9 |"
        )?;
        writeln!(page, "|---|---|---|---|---|---|---|---|")?;
        for (rate, table) in &self.rates {
            for (name, row) in table.rows() {
                let (cpu, ratio) = (row.figures(|round| round.cpu), row.ratio(|round| round.cpu));
                write!(page, "| {rate} | {name} | {cpu:.1} | {ratio:.2} ")?;
                write!(
                    page,
                    "| {:.0} | {:.0} ",
                    row.figures(|round| round.p50),
                    row.figures(|round| round.p99)
                )?;
                let (p999, ratio) = (row.figures(|round| round.p999), row.ratio(|round| round.p999));
                writeln!(page, "| {p999:.0} | {ratio:.2} |")?;
            }
        }
        writeln!(page)
    }
}

/// What stands before the figures.
const SERVERS: &str = "\
- *bare tonic*, the unit: tonic's own transport, one runtime and one listener a core, nothing else mounted, a constant answer
  (`examples/bare_tonic.rs`).
- *bare edge*: Tidegate's way of serving around a constant answer (`examples/bare.rs`).
- *tidegate*: the whole decision, counters in memory.

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
