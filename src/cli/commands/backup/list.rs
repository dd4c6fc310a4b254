//! `etcdrun backup list CLUSTER`.

use clap::Args;
use serde_json::json;

use super::WhichArgs;
use crate::cli::support::{CliError, Exit, Invocation, runtime::runtime, shelf::unexpected};
use crate::{
    backup::{Kept, Keys, backups},
    model::ByteSize,
};

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    which: WhichArgs,
}

pub fn run(args: &ListArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let cluster = &args.which.cluster;
    let shelf = args.which.shelf(invocation)?;
    let keys = shelf.keys(cluster)?;
    let found = runtime()?.block_on(backups(&shelf.store, cluster)).map_err(unexpected)?;
    if invocation.json {
        invocation.print(&format!("{:#}\n", json!({ "backups": found.backups, "damaged": found.damaged })))?;
        return Ok(Exit::Success);
    }
    invocation.print(&listing(&found, &keys))?;
    Ok(Exit::Success)
}

/// The newest first. What cannot be read has its place among them, and says why at the end.
fn listing(found: &Kept, keys: &Keys) -> String {
    let good = found.backups.iter().map(|manifest| {
        let row = [
            manifest.name(),
            manifest.taken.to_string(),
            manifest.revision.to_string(),
            ByteSize(manifest.size).to_string(),
            ByteSize(manifest.stored_size).to_string(),
            if manifest.recipients.is_empty() { "no".into() } else { format!("{} keys", manifest.recipients.len()) },
            keys.verdict(manifest).word().to_owned(),
        ];
        (manifest.taken, row)
    });
    let bad = found.damaged.iter().map(|it| {
        let unknown = || "?".to_owned();
        let (taken, revision) = (it.taken.to_string(), it.revision.to_string());
        (it.taken, [it.name.clone(), taken, revision, unknown(), unknown(), unknown(), "damaged".to_owned()])
    });
    let mut rows: Vec<_> = good.chain(bad).collect();
    rows.sort_by_key(|(taken, _)| std::cmp::Reverse(*taken));
    let rows: Vec<[String; 7]> = rows
        .into_iter()
        .map(|(_, [name, rest @ ..])| {
            let [a, b, c, d, e, f] = rest;
            [name.trim_end_matches(".json").to_owned(), a, b, c, d, e, f]
        })
        .collect();
    let mut text = table(["BACKUP", "TAKEN", "REVISION", "SIZE", "STORED", "ENCRYPTED", "AUTHENTIC"], &rows);
    for it in &found.damaged {
        text += &format!("damaged: {}; etcdrun never deletes it\n", it.why);
    }
    text
}

fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).chain([head[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(body).collect()
}
