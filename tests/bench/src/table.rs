//! What came of it: rows, as JSON for programs and as a table for people.

use std::fmt::Write as _;

use serde::Serialize;

/// How a ratio is held against its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The peer's time by ours.
    AtLeast,
    /// Ours by the peer's, or by what is allowed.
    AtMost,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub etcdrun: f64,
    pub peer: String,
    pub peer_value: f64,
    pub ratio: f64,
    pub bar: Option<f64>,
    pub ok: bool,
    pub sense: Sense,
    /// How often each of the two was measured; the values are medians.
    pub times: usize,
    pub peer_times: usize,
}

impl Row {
    /// Faster than a peer by at least `bar`.
    pub fn faster(name: &str, ours: &[f64], peer: &str, theirs: &[f64], bar: Option<f64>) -> Self {
        let (etcdrun, peer_value) = (median(ours), median(theirs));
        let ratio = peer_value / etcdrun;
        let row = Self::new(name, "s", (etcdrun, ours.len()), peer, (peer_value, theirs.len()), Sense::AtLeast);
        Self { ratio, bar, ok: bar.is_none_or(|bar| ratio >= bar), ..row }
    }

    /// At most `bar` times what the peer has.
    pub fn within(name: &str, unit: &'static str, ours: &[f64], peer: &str, theirs: &[f64], bar: f64) -> Self {
        let (etcdrun, peer_value) = (median(ours), median(theirs));
        let ratio = etcdrun / peer_value;
        let row = Self::new(name, unit, (etcdrun, ours.len()), peer, (peer_value, theirs.len()), Sense::AtMost);
        Self { ratio, bar: Some(bar), ok: ratio <= bar, ..row }
    }

    /// At most so much.
    pub fn limit(name: &str, unit: &'static str, ours: &[f64], limit: f64) -> Self {
        Self { peer_times: 0, ..Self::within(name, unit, ours, "the limit", &[limit], 1.0) }
    }

    /// So many, and none is right.
    pub fn none(name: &str, count: usize, times: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let count = count as f64;
        let row = Self::new(name, "", (count, times), "the limit", (0.0, 0), Sense::AtMost);
        Self { ratio: count, bar: Some(0.0), ok: count == 0.0, ..row }
    }

    /// Beside nothing.
    pub fn figure(name: &str, unit: &'static str, ours: &[f64]) -> Self {
        Self::new(name, unit, (median(ours), ours.len()), "", (f64::NAN, 0), Sense::AtMost)
    }

    fn new(name: &str, unit: &'static str, ours: (f64, usize), peer: &str, theirs: (f64, usize), sense: Sense) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            etcdrun: ours.0,
            peer: peer.to_owned(),
            peer_value: theirs.0,
            ratio: f64::NAN,
            bar: None,
            ok: true,
            sense,
            times: ours.1,
            peer_times: theirs.1,
        }
    }

    fn line(&self) -> String {
        let times = |count: usize| if count > 1 { format!(" ×{count}") } else { String::new() };
        let bar = match (self.bar, self.sense) {
            (None, _) => "none".to_owned(),
            (Some(bar), Sense::AtLeast) => format!("≥ {bar}"),
            (Some(bar), Sense::AtMost) => format!("≤ {bar}"),
        };
        let verdict = match (self.bar, self.ok) {
            (None, _) => "",
            (_, true) => "yes",
            (_, false) => "**no**",
        };
        if self.peer.is_empty() {
            let (is, times) = (short(self.etcdrun), times(self.times));
            return format!("| {} | {is} {}{times} |  |  |  | none |  |", self.name, self.unit);
        }
        format!(
            "| {} | {} {}{} | {} | {} {}{} | {:.2} | {bar} | {verdict} |",
            self.name,
            short(self.etcdrun),
            self.unit,
            times(self.times),
            self.peer,
            short(self.peer_value),
            self.unit,
            times(self.peer_times),
            self.ratio
        )
    }
}

/// The smallest value that so many of all do not exceed.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let place = ((share * sorted.len() as f64).ceil() as usize).max(1) - 1;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| work | etcdrun | peer | peer's | ratio | bar | holds |\n|---|---|---|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}
