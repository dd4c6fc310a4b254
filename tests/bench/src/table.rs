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
    /// What each single measurement came to, so that anybody can check the medians and the ratio.
    pub values: Vec<f64>,
    pub peer_values: Vec<f64>,
    /// Why the peer was not measured.
    pub not_measured: Option<String>,
}

impl Row {
    /// Faster than a peer by at least `bar`.
    pub fn faster(name: &str, ours: &[f64], peer: &str, theirs: &[f64], bar: Option<f64>) -> Self {
        let ratio = median(theirs) / median(ours);
        let row = Self::new(name, "s", ours, peer, theirs, Sense::AtLeast);
        Self { ratio, bar, ok: bar.is_none_or(|bar| ratio >= bar), ..row }
    }

    /// At most `bar` times what the peer has.
    pub fn within(name: &str, unit: &'static str, ours: &[f64], peer: &str, theirs: &[f64], bar: f64) -> Self {
        let ratio = median(ours) / median(theirs);
        let row = Self::new(name, unit, ours, peer, theirs, Sense::AtMost);
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
        let row = Self::new(name, "", &[count], "the limit", &[0.0], Sense::AtMost);
        Self { ratio: count, bar: Some(0.0), ok: count == 0.0, times, peer_times: 0, ..row }
    }

    /// Beside what a peer has, as a ratio without a bar.
    pub fn beside(name: &str, unit: &'static str, ours: &[f64], peer: &str, theirs: &[f64]) -> Self {
        Self { bar: None, ok: true, ..Self::within(name, unit, ours, peer, theirs, 1.0) }
    }

    /// A peer that cannot be had. A bar that was not looked at does not hold.
    pub fn not_measured(name: &str, ours: &[f64], peer: &str, reason: &str, bar: Option<f64>) -> Self {
        let row = Self::faster(name, ours, peer, &[], bar);
        Self { ok: bar.is_none(), not_measured: Some(reason.to_owned()), ..row }
    }

    /// Beside nothing.
    pub fn figure(name: &str, unit: &'static str, ours: &[f64]) -> Self {
        Self::new(name, unit, ours, "", &[], Sense::AtMost)
    }

    fn new(name: &str, unit: &'static str, ours: &[f64], peer: &str, theirs: &[f64], sense: Sense) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            etcdrun: median(ours),
            peer: peer.to_owned(),
            peer_value: median(theirs),
            ratio: f64::NAN,
            bar: None,
            ok: true,
            sense,
            times: ours.len(),
            peer_times: theirs.len(),
            values: ours.to_vec(),
            peer_values: theirs.to_vec(),
            not_measured: None,
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
        let (is, often) = (short(self.etcdrun), times(self.times));
        if self.peer.is_empty() {
            return format!("| {} | {is} {}{often} |  |  |  | none |  |", self.name, self.unit);
        }
        if let Some(reason) = &self.not_measured {
            let reason = reason.replace(['|', '\n'], " ");
            let (name, unit, peer) = (&self.name, self.unit, &self.peer);
            return format!("| {name} | {is} {unit}{often} | {peer} | not measured: {reason} |  | {bar} | {verdict} |");
        }
        format!(
            "| {} | {is} {}{often} | {} | {} {}{} | {:.2} | {bar} | {verdict} |",
            self.name,
            self.unit,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_cannot_be_had_is_told_and_its_bar_does_not_hold() {
        let row = |bar| Row::not_measured("work", &[1.0, 3.0, 2.0], "peer", "pip | failed", bar);
        let line = "| work | 2.00 s ×3 | peer | not measured: pip   failed |  | ≥ 1 | **no** |";
        assert_eq!((row(Some(1.0)).line().as_str(), row(Some(1.0)).ok, row(None).ok), (line, false, true));
    }

    #[test]
    fn a_ratio_is_that_of_the_medians() {
        let row = Row::beside("gap", "ms", &[20.0, 60.0, 30.0], "quiet", &[10.0, 15.0, 40.0]);
        assert_eq!((row.ratio, row.bar, row.values.len()), (2.0, None, 3));
        assert_eq!(row.line(), "| gap | 30.0 ms ×3 | quiet | 15.0 ms ×3 | 2.00 | none |  |");
    }
}
