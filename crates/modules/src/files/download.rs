//! `download`: a file from a URL, brought by the target itself or by the operator.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{fs::File, io::AsyncWriteExt, sync::OnceCell};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    copy::{checked_dest, landing},
    local::Fingerprint,
    place::{self, Place},
    scratch::Scratch,
};
use crate::{
    http::{self, Client, Direct, HttpError, Trust},
    model::{Effects, FileMode, Seconds, Value},
    remote::Payload,
    task::{Permit, RunScope},
};
use etcdrun_base::mutant::{is_off, repair};

const BODY: &str = concat!(
    include_str!("../support/attributes.sh"),
    include_str!("../support/staged.sh"),
    include_str!("download.sh"),
    include_str!("../support/place.sh")
);

/// Downloads a file to the target and verifies it.
///
/// The file is downloaded only if the one in place has another checksum. The target does it with curl or GNU wget if it
/// can; otherwise the operator downloads the file and uploads it.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Download {
    /// Where the file is: http or https. Up to ten redirects are followed.
    url: String,
    /// The path on the target. A directory, or a path that ends in a slash, takes the file under the name in the URL.
    dest: String,
    /// The file's SHA-256 checksum, in hexadecimal.
    #[serde(default)]
    sha256: Option<String>,
    /// Accept any content of the URL, without a checksum. An existing file is kept, unless `force` is set.
    #[serde(default)]
    unverified: bool,
    /// With `unverified`: download each time, and replace the file if it differs.
    #[serde(default)]
    force: bool,
    /// Headers of the request, such as `Authorization`.
    #[serde(default)]
    headers: IndexMap<String, String>,
    /// The timeout of the download.
    #[serde(default = "five_minutes")]
    timeout: Seconds,
    /// Who downloads.
    #[serde(default)]
    via: Via,
    /// The owner of the file, by name or UID.
    #[serde(default)]
    owner: Option<String>,
    /// The group of the file, by name or GID.
    #[serde(default)]
    group: Option<String>,
    /// Permission bits of the file.
    #[serde(default)]
    mode: Option<FileMode>,
    /// Keep the previous file under a name with the time in it.
    #[serde(default)]
    backup: bool,
}

fn five_minutes() -> Seconds {
    Seconds(Duration::from_secs(300))
}

/// Who downloads a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Via {
    /// The target if it can, the operator otherwise.
    #[default]
    Auto,
    /// The target only.
    Target,
    /// The operator, who uploads the file.
    Operator,
}

impl Module for Download {
    const NAME: &'static str = "download";
    const EXAMPLE: &'static str = "\
- name: Download etcd
  download:
    url: https://github.com/etcd-io/etcd/releases/download/v3.5.34/etcd-v3.5.34-linux-amd64.tar.gz
    dest: /var/cache/etcd/
    sha256: \"{{ etcd_sha256 }}\"
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn validate(&self) -> Result<(), ModuleError> {
        match (&self.sha256, self.unverified) {
            (Some(_), true) => Err(ModuleError::new("`sha256` and `unverified` exclude each other")),
            _ => Ok(()),
        }
    }

    fn effects(&self) -> Effects {
        Effects::converging().on(landing(&self.dest, Some(&name_in(&self.url))))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let sha256 = self.checked_sha256()?;
        self.check_request().map_err(|error| ModuleError::new(error.to_string()))?;
        let place = Place {
            dest: checked_dest(self.dest.clone())?,
            name: name_in(&self.url),
            owner: self.owner.clone(),
            group: self.group.clone(),
            mode: self.mode.clone(),
            backup: self.backup,
            keep: self.unverified && !self.force,
            follow: true,
            ..Place::default()
        };
        let payload = self.payload(&place, &sha256);
        Ok(match self.via {
            Via::Target => Action::Remote(payload),
            _ => Action::Engine(Box::new(Bring { payload, place, sha256, module: self })),
        })
    }
}

impl Download {
    fn checked_sha256(&self) -> Result<String, ModuleError> {
        match &self.sha256 {
            Some(sum) if sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Ok(sum.to_ascii_lowercase())
            }
            Some(sum) => Err(ModuleError::new(format!("`{sum}` is not a SHA-256 checksum"))
                .help("it has 64 hexadecimal digits; `sha256sum FILE` prints it")),
            None if self.unverified => Ok(String::new()),
            None => Err(ModuleError::new("`download` needs `sha256`")
                .help("set `unverified: true` to accept any content of the URL")),
        }
    }

    fn payload(&self, place: &Place, sha256: &str) -> Payload {
        let via = match self.via {
            Via::Auto => "auto",
            Via::Target => "target",
            Via::Operator => "operator",
        };
        place
            .url(BODY, sha256)
            .value("via", via)
            .hidden("url", &self.url)
            .hidden("curl", curl_config(&self.url, self.timeout_seconds(), &self.headers))
            .value("timeout", self.timeout_seconds().to_string())
            .flag("has_headers", !self.headers.is_empty())
    }

    fn timeout_seconds(&self) -> u64 {
        self.timeout.0.as_secs().max(1)
    }

    fn check_request(&self) -> Result<(), HttpError> {
        http::check_url(&self.url)?;
        self.headers.iter().try_for_each(|(name, value)| http::parse_header(name, value).map(|_| ()))
    }
}

/// What curl reads from its standard input: nothing of it shows in the list of processes.
pub(crate) fn curl_config(url: &str, seconds: u64, headers: &IndexMap<String, String>) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut config =
        format!("url = \"{}\"\nproto = \"=http,https\"\nmax-redirs = 10\nmax-time = {seconds}\n", quoted(url));
    for (name, value) in headers {
        config.push_str(&format!("header = \"{}: {}\"\n", quoted(name), quoted(value)));
    }
    config
}

/// Downloads to a file of the operator.
pub(crate) async fn bring_here(
    url: &str,
    headers: &IndexMap<String, String>,
    permit: &Permit,
) -> Result<Scratch, HttpError> {
    let failed = |error: std::io::Error| HttpError::Body(format!("cannot store the download: {error}").into());
    let client = Client::new(Trust::System)?;
    let client = headers.iter().try_fold(client, |client, (name, value)| client.header(name, value))?;
    let mut body = client.download(url, &Direct).await?.into_body();
    let (scratch, file) = Scratch::create(&std::env::temp_dir(), permit).map_err(failed)?;
    let mut file = File::from_std(file);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| HttpError::Body(format!("the download was interrupted: {error}").into()))?;
        if let Some(data) = frame.data_ref() {
            file.write_all(data).await.map_err(failed)?;
        }
    }
    file.flush().await.map_err(failed)?;
    Ok(scratch)
}

/// The last part of the URL's path.
fn name_in(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    path.split_once('/').and_then(|(_, path)| path.rsplit('/').next()).unwrap_or_default().to_owned()
}

struct Bring {
    module: Download,
    payload: Payload,
    place: Place,
    sha256: String,
}

impl EngineAction for Bring {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let asked = context.run(self.payload.clone()).await?;
            let wanted = asked.data.get("wanted") == Some(&Value::Bool(true));
            if asked.failed || context.check_mode() || !wanted {
                return Ok(asked);
            }
            let download = shared(&context.scope, &self.sha256);
            let permit = context.permit()?;
            let (scratch, fingerprint) = download.0.get_or_try_init(|| self.download(&permit)).await?;
            let staged = context.upload(scratch.path()).await?;
            context.run(self.place.staged(&staged, fingerprint)).await
        })
    }
}

impl Bring {
    /// Downloads to a file of the operator, and verifies it.
    async fn download(&self, permit: &Permit) -> Result<Downloaded, ActionError> {
        let limit = self.module.timeout.0;
        let failed = |error: HttpError| ActionError::Failed(error.to_string());
        let scratch = tokio::time::timeout(limit, bring_here(&self.module.url, &self.module.headers, permit))
            .await
            .map_err(|_| failed(HttpError::TimedOut(limit)))?
            .map_err(failed)?;
        let fingerprint = place::fingerprint(scratch.path()).await?;
        if !self.sha256.is_empty() && fingerprint.sha256 != self.sha256 && !is_off(repair::DOWNLOAD_SUM) {
            let message = format!("the download has the sha256 {}, expected {}", fingerprint.sha256, self.sha256);
            return Err(ActionError::Failed(message));
        }
        Ok((scratch, fingerprint))
    }
}

type Downloaded = (Scratch, Fingerprint);

/// The download of a file with this checksum: hosts that want it at the same time share one. It goes away with the
/// last of them.
#[derive(Default)]
struct SharedDownload(OnceCell<Downloaded>);

fn shared(scope: &RunScope, sha256: &str) -> Arc<SharedDownload> {
    match sha256 {
        // Without a checksum they may differ.
        "" => Arc::default(),
        sha256 => scope.used(sha256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        for (url, name) in [
            ("https://host/a/b.tar.gz?token=x/y", "b.tar.gz"),
            ("http://host/", ""),
            ("http://host", ""),
            ("http://host:80/x#y", "x"),
        ] {
            assert_eq!(name_in(url), name, "{url}");
        }
    }

    #[test]
    fn hosts_share_a_download_only_if_it_has_a_checksum() {
        let scope = RunScope::default();
        let sum = "a".repeat(64);
        let first = shared(&scope, &sum);
        assert!(Arc::ptr_eq(&first, &shared(&scope, &sum)));
        assert!(!Arc::ptr_eq(&shared(&scope, ""), &shared(&scope, "")));
    }
}
