//! A plan in a file: what it was loaded from, and what it foresaw.
//!
//! The first line says what the file is and has its key; the rest is encrypted with that. As with a run's folder,
//! the key lies beside what it opens: it keeps secrets out of a grep, and tells a damaged file from a whole one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{Bundle, Operator, StateError, Vault, write_private};
use crate::{
    model::Prediction,
    source::disk::{Inputs, sum},
};

const MAGIC: &str = "etcdrun-plan";
const VERSION: &str = "1";

/// A plan that can be run later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanFile {
    pub bundle: Bundle,
    /// The texts that the bundle names, by their sums.
    contents: BTreeMap<String, String>,
    pub graphs: Vec<PlannedGraph>,
    /// Files of the operator that tasks send or render, with their sums.
    pub files: BTreeMap<PathBuf, String>,
    pub operator: Operator,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedGraph {
    pub fingerprint: String,
    pub predictions: Vec<Prediction>,
}

impl PlanFile {
    pub fn new(bundle: Bundle, inputs: &Inputs, graphs: Vec<PlannedGraph>, files: BTreeMap<PathBuf, String>) -> Self {
        let contents = inputs.contents.iter().map(|(sum, bytes)| (sum.clone(), STANDARD.encode(bytes))).collect();
        let at = jiff::Timestamp::now().as_millisecond();
        Self { bundle, contents, graphs, files, operator: Operator::me(), at }
    }

    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let fail = |error: std::io::Error| StateError::io(path, &error);
        let (vault, key) = Vault::fresh(path)?;
        let body = serde_json::to_vec(self).map_err(|error| fail(error.into()))?;
        let sealed = vault.seal_bytes(body).ok_or_else(|| fail(std::io::ErrorKind::Other.into()))?;
        let head = format!("{MAGIC} {VERSION} {} ", env!("CARGO_PKG_VERSION"));
        let text = zeroize::Zeroizing::new([head.as_str(), &key, "\n", &sealed, "\n"].concat());
        write_private(&std::path::absolute(path).map_err(fail)?, text.as_bytes())
    }

    pub fn read(path: &Path) -> Result<Self, StateError> {
        let wrong = |problem: &str| StateError::Plan { path: path.to_owned(), problem: problem.to_owned() };
        StateError::unless_trusted(path)?;
        let bytes = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not a plan"))?;
        let (head, sealed) = text.split_once('\n').unwrap_or((&text, ""));
        let words: Vec<&str> = head.split(' ').collect();
        let &[MAGIC, version, etcdrun, key] = words.as_slice() else { return Err(wrong("it is not a plan")) };
        if (version, etcdrun) != (VERSION, env!("CARGO_PKG_VERSION")) {
            let ours = env!("CARGO_PKG_VERSION");
            return Err(wrong(&format!("it was created by etcdrun {etcdrun}, and this is {ours}")));
        }
        let damaged = || wrong("it is damaged or truncated");
        let vault = Vault::of_key(key, path).map_err(|_| damaged())?;
        let body = vault.unseal_bytes(sealed.trim_end()).ok_or_else(damaged)?;
        serde_json::from_slice(&body).map_err(|_| damaged())
    }

    /// Everything that loading asks for.
    pub fn inputs(&self) -> Inputs {
        let decode = |(sum, text): (&String, &String)| Some((sum.clone(), STANDARD.decode(text).ok()?));
        Inputs { answers: self.bundle.answers().clone(), contents: self.contents.iter().filter_map(decode).collect() }
    }

    /// Files of the operator that are not what they were.
    pub fn moved_files(&self) -> Vec<&Path> {
        let differs = |(path, known): &(&PathBuf, &String)| {
            std::fs::read(path).map(|bytes| sum(&bytes)).ok().as_ref() != Some(*known)
        };
        self.files.iter().filter(differs).map(|(path, _)| path.as_path()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_private_and_damage_is_seen() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan");
        let mut inputs = Inputs::default();
        inputs.contents.insert("sum".into(), b"hunter2".to_vec());
        let bundle =
            Bundle::new(vec!["-e".into(), "password=hunter2".into()], "/".into(), serde_json::Value::Null, &inputs);
        let plan = PlanFile::new(bundle, &inputs, Vec::new(), BTreeMap::new());
        plan.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let whole = std::fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&whole).contains("hunter2"));
        assert_eq!(PlanFile::read(&path).unwrap().inputs().contents, inputs.contents);
        let problem = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            PlanFile::read(&path).unwrap_err().to_string()
        };
        let mut flipped = whole.clone();
        let middle = whole.len() / 2;
        flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
        let text = String::from_utf8(whole.clone()).unwrap();
        let newer = text.replacen(env!("CARGO_PKG_VERSION"), "99.0.0", 1);
        for (bytes, said) in [
            (&whole[..whole.len() - 9], "it is damaged or truncated"),
            (&whole[..40], "it is damaged or truncated"),
            (&whole[..15], "it is not a plan"),
            (&flipped, "it is damaged or truncated"),
            (b"" as &[u8], "it is not a plan"),
            (b"- hosts: all\n", "it is not a plan"),
            (b"\xff\xfe", "it is not a plan"),
            (newer.as_bytes(), "it was created by etcdrun 99.0.0"),
        ] {
            let found = problem(bytes);
            assert!(found.contains(said), "{found} is not {said}");
        }
    }
}
