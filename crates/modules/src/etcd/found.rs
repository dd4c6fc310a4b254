//! The etcd that runs on a host, whoever has started it; only looked at.

use zeroize::Zeroizing;

use crate::{
    model::Value,
    remote::{Payload, RemoteError, Session},
};

/// A server that runs.
#[derive(Clone, Debug, Default)]
pub struct FoundEtcd {
    pub pid: String,
    pub program: String,
    /// Of the program that runs, which need not be the file any more.
    pub sha256: String,
    pub user: String,
    /// Its home and its shell, where they are known.
    pub account: Option<(String, String)>,
    /// Where it was started; relative paths begin there.
    pub folder: String,
    pub unit: Option<String>,
    /// It has another file system than the host.
    pub is_contained: bool,
    /// The program's name is the first.
    pub arguments: Vec<String>,
    /// Names that begin with `ETCD_`.
    pub environment: Vec<(String, String)>,
}

/// What is asked of the host once it is known what etcd was told.
#[derive(Clone, Debug, Default)]
pub struct FoundFiles {
    /// In the order of the paths.
    pub files: Vec<Zeroizing<String>>,
    pub above_owner: Option<String>,
    /// The address that the name stands for there.
    pub ip: Option<String>,
}

/// Finds it. Why there is none, or which of several cannot be told, is an error.
pub async fn find_etcd(session: &Session) -> Result<FoundEtcd, RemoteError> {
    let data = ask(session, Payload::new(include_str!("found.sh"))).await?;
    let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    if text("pid").parse::<u32>().is_err() {
        return Err(RemoteError::Protocol("it did not report which process is etcd".into()));
    }
    let account = text("account");
    let fields: Vec<&str> = account.trim().split(':').collect();
    Ok(FoundEtcd {
        pid: text("pid"),
        program: text("program"),
        sha256: text("sha256"),
        user: text("user"),
        account: fields.get(5).zip(fields.get(6)).map(|(home, shell)| ((*home).to_owned(), (*shell).to_owned())),
        folder: text("folder"),
        unit: Some(text("unit")).filter(|unit| !unit.is_empty()),
        is_contained: data.get("contained") == Some(&Value::Bool(true)),
        arguments: text("arguments").lines().map(str::to_owned).collect(),
        environment: text("environment").lines().filter_map(pair).collect(),
    })
}

/// Reads files as that process sees them; `data_dir` and `host` are empty where nobody wants to know.
pub async fn read_etcd_files(
    session: &Session,
    found: &FoundEtcd,
    paths: &[&str],
    data_dir: &str,
    host: &str,
) -> Result<FoundFiles, RemoteError> {
    let payload = Payload::new(include_str!("found_files.sh"))
        .value("pid", &found.pid)
        .value("data_dir", data_dir)
        .value("host", host);
    let data = ask(session, paths.iter().fold(payload, Payload::arg)).await?;
    let text = |name: &str| data.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let file = |number: usize| Zeroizing::new(text(&format!("file_{number}")).unwrap_or_default());
    Ok(FoundFiles { files: (1..=paths.len()).map(file).collect(), above_owner: text("above_owner"), ip: text("ip") })
}

async fn ask(session: &Session, payload: Payload) -> Result<crate::model::ValueMap, RemoteError> {
    let outcome = session.run_one(payload, true).await?;
    match outcome.failed {
        true => Err(RemoteError::Protocol(outcome.msg.into())),
        false => Ok(outcome.data),
    }
}
