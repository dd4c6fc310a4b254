//! `serial`: hosts in batches.

use crate::{inventory::HostId, playbook::BatchSize};

/// Cuts the hosts into batches; the last size repeats. No sizes means one batch.
pub(super) fn batches(hosts: &[HostId], sizes: &[BatchSize]) -> Vec<Vec<HostId>> {
    let mut rest = hosts;
    let mut batches = Vec::new();
    let mut position = 0;
    while !rest.is_empty() {
        let size = sizes.get(position).or(sizes.last()).map_or(rest.len(), |size| count(*size, hosts.len()));
        let (batch, later) = rest.split_at(size.min(rest.len()));
        batches.push(batch.to_vec());
        rest = later;
        position += 1;
    }
    batches
}

/// A percentage rounds down, as in Ansible, but is never less than one host.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "host counts are small"
)]
fn count(size: BatchSize, total: usize) -> usize {
    match size {
        BatchSize::Count(0) => total,
        BatchSize::Count(n) => n,
        BatchSize::Percent(percent) => ((percent / 100.0 * total as f64) as usize).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(hosts: u32, sizes: &[BatchSize]) -> Vec<usize> {
        let hosts: Vec<_> = (0..hosts).map(HostId).collect();
        batches(&hosts, sizes).iter().map(Vec::len).collect()
    }

    #[test]
    fn the_last_size_repeats() {
        assert_eq!(sizes(10, &[]), [10]);
        assert_eq!(sizes(10, &[BatchSize::Count(1), BatchSize::Count(4)]), [1, 4, 4, 1]);
        assert_eq!(sizes(10, &[BatchSize::Percent(30.0)]), [3, 3, 3, 1]);
        assert_eq!(sizes(3, &[BatchSize::Percent(1.0)]), [1, 1, 1]);
        assert_eq!(sizes(3, &[BatchSize::Count(0)]), [3]);
    }
}
