//! Base images that come from the operator or from a URL, once to each hypervisor.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    ActionContext, ActionError, BuildContext, EngineAction, ModuleError, Running, download, local, place,
    scratch::Scratch,
};
use crate::{
    http::{self, HttpError},
    model::{Outcome, Value},
    remote::Payload,
    task::Permit,
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_image.sh"));
/// A download may take this long; one that broke off goes on with the next run.
const LIMIT: Duration = Duration::from_secs(3600);

/// Where an image comes from: `file` or `url`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Source {
    /// A file of the operator.
    file: Option<String>,
    /// An http or https URL. The hypervisor downloads it with curl or GNU wget; if it cannot, the operator does.
    url: Option<String>,
    /// Its SHA-256 checksum, in hexadecimal. Required with `url`.
    sha256: Option<String>,
}

/// An image on its way.
pub(super) struct Bring {
    pool: String,
    name: String,
    from: From,
    sha256: Option<String>,
}

enum From {
    File(PathBuf),
    Url(String),
}

impl Source {
    pub fn action(self, pool: String, name: String, context: &BuildContext<'_>) -> Result<Bring, ModuleError> {
        let sha256 = self.sha256.as_deref().map(checked_sum).transpose()?;
        let from = match (self.file, self.url) {
            (Some(file), None) => From::File(local::find(&file, context.file_paths)?),
            (None, Some(_)) if sha256.is_none() => {
                return Err(ModuleError::new("an image from a URL needs its `sha256`"));
            }
            (None, Some(url)) => {
                http::check_url(&url).map_err(|error| ModuleError::new(error.to_string()))?;
                From::Url(url)
            }
            _ => return Err(ModuleError::new("an image comes from a `file` or a `url`")),
        };
        Ok(Bring { pool, name, from, sha256 })
    }
}

fn checked_sum(sum: &str) -> Result<String, ModuleError> {
    match sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(sum.to_ascii_lowercase()),
        false => Err(ModuleError::new(format!("`{sum}` is not a SHA-256 checksum"))
            .help("it has 64 hexadecimal digits; `sha256sum FILE` prints it")),
    }
}

impl EngineAction for Bring {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let sha256 = match (&self.sha256, &self.from) {
                (Some(sum), _) => sum.clone(),
                (None, From::File(path)) => place::fingerprint(path).await?.sha256,
                (None, From::Url(_)) => String::new(),
            };
            let asked = context.run(self.step("ask", &sha256)).await?;
            let wanted = asked.data.get("wanted") == Some(&Value::Bool(true));
            if asked.failed || context.check_mode() || !wanted {
                return Ok(without_notes(asked));
            }
            let outcome = match &self.from {
                From::File(path) => self.upload(context, &asked, path.clone(), &sha256).await?,
                From::Url(url) => self.download(context, &asked, url, &sha256).await?,
            };
            Ok(without_notes(outcome))
        })
    }
}

impl Bring {
    fn step(&self, step: &str, sha256: &str) -> Payload {
        Payload::new(BODY)
            .value("step", step)
            .value("pool", &self.pool)
            .value("name", &self.name)
            .value("sha256", sha256)
            .value("got", "")
            .hidden("url", "")
            .hidden("curl", "")
    }

    async fn upload(
        &self,
        context: &ActionContext,
        asked: &Outcome,
        file: PathBuf,
        sha256: &str,
    ) -> Result<Outcome, ActionError> {
        let have = asked.data.get("have").and_then(Value::as_u64).unwrap_or(0);
        let part = asked.data.get("part").and_then(Value::as_str).unwrap_or_default();
        let failed = |error: std::io::Error| ActionError::Failed(format!("cannot read `{}`: {error}", file.display()));
        let size = tokio::fs::metadata(&file).await.map_err(failed)?.len();
        // A part that is larger was never a part of this file; the checksum would find out about others.
        let have = if have > size { 0 } else { have };
        let report = context.progress.clone();
        let last = Arc::new(AtomicU64::new(0));
        let progress = move |sent: u64| {
            let done = have + sent;
            // A step of one percent is enough for a bar.
            if done - last.load(Ordering::Relaxed) >= size / 100 || done == size {
                last.store(done, Ordering::Relaxed);
                report(done, size);
            }
        };
        let got = context.session.append(&file, part, have, &progress).await?;
        context.run(self.step("place", sha256).value("got", got.unwrap_or_default())).await
    }

    async fn download(
        &self,
        context: &ActionContext,
        asked: &Outcome,
        url: &str,
        sha256: &str,
    ) -> Result<Outcome, ActionError> {
        let payload = Payload::new(BODY)
            .value("step", "url")
            .value("pool", &self.pool)
            .value("name", &self.name)
            .value("sha256", sha256)
            .value("got", "")
            .hidden("url", url)
            .hidden("curl", download::curl_config(url, LIMIT.as_secs(), &IndexMap::new()));
        let tried = context.run(payload).await?;
        if !tried.failed {
            return Ok(tried);
        }
        tracing::info!(reason = %tried.msg, "the operator downloads the image instead");
        let scratch = self.download_here(url, sha256, &context.permit()?).await?;
        // What the hypervisor got so far may be of anything.
        let asked = Outcome { data: asked.data.clone(), ..Outcome::ok() }.with("have", 0);
        self.upload(context, &asked, scratch.path().to_owned(), sha256).await
    }

    async fn download_here(&self, url: &str, sha256: &str, permit: &Permit) -> Result<Scratch, ActionError> {
        let failed = |error: HttpError| ActionError::Failed(error.to_string());
        let brought = tokio::time::timeout(LIMIT, download::bring_here(url, &IndexMap::new(), permit)).await;
        let scratch = brought.map_err(|_| failed(HttpError::TimedOut(LIMIT)))?.map_err(failed)?;
        let sum = place::fingerprint(scratch.path()).await?.sha256;
        match sum == sha256 {
            true => Ok(scratch),
            false => Err(ActionError::Failed(format!("the download has the sha256 {sum}, expected {sha256}"))),
        }
    }
}

/// What was only said between the hypervisor and us.
fn without_notes(mut outcome: Outcome) -> Outcome {
    ["wanted", "part", "have"].iter().for_each(|name| {
        outcome.data.shift_remove(*name);
    });
    outcome
}
