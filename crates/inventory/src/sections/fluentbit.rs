//! `fluentbit`: the logs of a cluster's members.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Text, chrony::is_word_of};
use crate::model::ByteSize;

/// Logs of the members, for the role `fluent_bit`. `site.yaml` uses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FluentbitSection {
    /// Whether to install and configure Fluent Bit; default: false.
    pub enabled: bool,
    /// The tag of the logs of etcd; default: they are not sent.
    pub etcd_tag: Option<Text>,
    /// The tag of the logs of Patroni; default: they are not sent.
    pub patroni_tag: Option<Text>,
    /// The tag of the logs of node_exporter; default: they are not sent.
    pub node_exporter_tag: Option<Text>,
    /// More units of systemd, whose logs are read from the journal.
    pub journal: Vec<JournalInput>,
    /// Log files.
    pub files: Vec<FileInput>,
    /// The receiver of the logs.
    pub forward: Option<Forward>,
    /// Where logs wait while the receiver does not answer.
    pub buffer: LogBuffer,
    /// Metrics of Fluent Bit itself.
    pub metrics: LogMetrics,
    /// Fluent Bit's configuration, from keys of an etcd cluster, while it runs.
    pub etcd: LogSettings,
    /// An executable of Fluent Bit, instead of a package.
    pub binary: Option<Program>,
    /// The package to install; empty: none, Fluent Bit is already there; default: fluent-bit.
    pub package: Option<String>,
    /// The path of Fluent Bit on the host; default: /opt/fluent-bit/bin/fluent-bit, where its packages have it.
    pub program: Option<String>,
}

/// A unit of systemd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalInput {
    /// The unit with its suffix, such as ssh.service.
    pub unit: Text,
    /// The tag of its logs.
    pub tag: Text,
}

/// Log files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileInput {
    /// The absolute path; `*` stands for any characters of a name.
    pub path: Text,
    /// The tag of their lines.
    pub tag: Text,
}

/// A receiver of the forward protocol: Fluentd or Fluent Bit.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Its name or address.
    pub domain: Text,
    /// Its port; default: 24224.
    pub port: Option<u16>,
    /// The name under which the host sends; default: its name in the inventory.
    pub hostname: Option<Text>,
    /// The key that it shares with its senders. Encrypt it.
    pub shared_key: Option<Text>,
    /// The certificate of the CA that signed the receiver's, in PEM; relative to this file. Default: the CAs of the host.
    pub ca_cert: Option<String>,
    /// Whether to use TLS; default: true.
    pub tls: Option<bool>,
    /// More properties of Fluent Bit's output `forward`, such as tls.verify_hostname.
    #[serde(default)]
    pub options: indexmap::IndexMap<String, Text>,
}

/// The buffer in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogBuffer {
    /// Its size. When it is full, the oldest logs are dropped. Default: 512MiB.
    pub limit: Option<ByteSize>,
}

/// The HTTP server of Fluent Bit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogMetrics {
    /// Whether to serve metrics, at /api/v1/metrics/prometheus; default: false.
    pub enabled: bool,
    /// The address to listen on; default: 127.0.0.1.
    pub listen: Option<Text>,
    /// The port; default: 2020.
    pub port: Option<u16>,
}

/// Where the configuration comes from while Fluent Bit runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Whether to use it; default: false.
    pub enabled: bool,
    /// The prefix of the keys, such as /fluent-bit/. Each key is a file; fluent-bit.conf is the one that Fluent Bit starts with.
    pub key_prefix: Option<String>,
    /// An etcd cluster of this inventory. Endpoints and CA follow from it.
    pub cluster: Option<String>,
    /// The members of another etcd cluster, as ADDRESS:PORT.
    pub endpoints: Vec<String>,
    /// The certificate of the CA of another etcd cluster, in PEM; relative to this file.
    pub ca_certificate: Option<String>,
    pub client: LogSettingsClient,
    /// An executable of etcdctl; default: the package etcd-client.
    pub etcdctl: Option<Program>,
}

/// How the host authenticates to etcd: by a certificate, or by name and password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettingsClient {
    /// A client certificate, in PEM; relative to this file. Not with `cluster`: etcdrun issues one for `username`.
    pub certificate: Option<String>,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
    /// The user.
    pub username: Option<String>,
    /// The password of the user. Encrypt it. With `cluster`, default: the one in `auth.users`.
    pub password: Option<Text>,
}

/// An executable: a file here or a URL, and its checksum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    /// The executable on your workstation; relative to this file.
    pub file: Option<String>,
    /// Where hosts download it.
    pub url: Option<String>,
    /// Its checksum, in hexadecimal.
    pub sha256: Option<String>,
}

impl FluentbitSection {
    /// Whether anything in it says what to send, and where.
    pub fn has_content(&self) -> bool {
        self.has_inputs() || self.forward.is_some() || self.etcd.enabled
    }

    pub fn has_inputs(&self) -> bool {
        self.tags().next().is_some()
    }

    pub fn tags(&self) -> impl Iterator<Item = (&'static str, &Text)> {
        let tags = [
            ("etcd_tag", &self.etcd_tag),
            ("patroni_tag", &self.patroni_tag),
            ("node_exporter_tag", &self.node_exporter_tag),
        ];
        let tags = tags.into_iter().filter_map(|(field, tag)| Some((field, tag.as_ref()?)));
        tags.chain(self.journal.iter().map(|input| ("journal", &input.tag)))
            .chain(self.files.iter().map(|input| ("files", &input.tag)))
    }
}

impl JournalInput {
    pub fn is_unit(&self) -> bool {
        is_word_of(&self.unit.0, "._:@-") && self.unit.0.contains('.')
    }
}

impl FileInput {
    /// Whether it is the path of files. A comma would separate two paths, and `$` begins a variable of Fluent Bit.
    pub fn is_path(&self) -> bool {
        let path = &self.path.0;
        path.starts_with('/') && path.chars().all(|letter| is_plain(letter) && !letter.is_whitespace() && letter != ',')
    }
}

impl Forward {
    pub fn has_domain(&self) -> bool {
        is_word_of(&self.domain.0, "._:-")
    }

    pub fn has_hostname(&self) -> bool {
        self.hostname.as_ref().is_none_or(|name| is_word_of(&name.0, "._-"))
    }

    /// Whether it can stand in Fluent Bit's configuration: a line, without blanks and without `$`, which begins a variable there.
    pub fn has_shared_key(&self) -> bool {
        self.shared_key.as_ref().is_none_or(|key| {
            !key.0.is_empty() && key.0.chars().all(|letter| is_plain(letter) && !letter.is_whitespace())
        })
    }

    /// An option that cannot stand in a line of Fluent Bit's configuration, or that has a key of its own here.
    pub fn wrong_option(&self) -> Option<&str> {
        const KNOWN: &[&str] = &["name", "match", "host", "port", "tls", "tls.ca_file", "shared_key", "self_hostname"];
        let is_wrong = |name: &str, value: &str| {
            !is_word_of(name, "._")
                || KNOWN.contains(&name.to_ascii_lowercase().as_str())
                || value.is_empty()
                || !value.chars().all(is_plain)
        };
        self.options.iter().find(|(name, value)| is_wrong(name, &value.0)).map(|(name, _)| name.as_str())
    }
}

impl LogMetrics {
    pub fn has_address(&self) -> bool {
        self.listen.as_ref().is_none_or(|listen| listen.0.parse::<std::net::IpAddr>().is_ok())
    }
}

impl LogSettings {
    /// Whether keys begin with it as etcdctl prints them, and the rest can be a file's path.
    pub fn has_prefix(&self) -> bool {
        let prefix = self.key_prefix.as_deref().unwrap_or_default();
        !prefix.is_empty() && prefix.chars().all(|letter| letter.is_ascii_alphanumeric() || "._/-".contains(letter))
    }

    /// An endpoint that is not like 10.0.0.1:2379.
    pub fn wrong_endpoint(&self) -> Option<&str> {
        let is_right = |endpoint: &str| {
            endpoint.rsplit_once(':').is_some_and(|(host, port)| {
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                is_word_of(host, "._:-") && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        self.endpoints.iter().map(String::as_str).find(|endpoint| !is_right(endpoint))
    }
}

/// Whether a tag can stand in Fluent Bit's configuration. `*` would be replaced there.
pub fn is_tag(tag: &Text) -> bool {
    is_word_of(&tag.0, "._-")
}

fn is_plain(letter: char) -> bool {
    !letter.is_control() && letter != '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text(text.to_owned())
    }

    #[test]
    fn what_would_end_a_line_or_begin_a_variable_is_refused() {
        let forward = |key: &str, option: (&str, &str)| Forward {
            domain: text("logs.example.org"),
            port: None,
            hostname: None,
            shared_key: Some(text(key)),
            ca_cert: None,
            tls: None,
            options: [(option.0.to_owned(), text(option.1))].into(),
        };
        let fine = ("tls.verify_hostname", "on");
        assert!(forward("a#b\"c", fine).has_shared_key() && forward("a", fine).wrong_option().is_none());
        for key in ["", "a b", "a\nb", "${HOME}"] {
            assert!(!forward(key, fine).has_shared_key(), "{key:?}");
        }
        for option in [("Shared_Key", "x"), ("a b", "x"), ("a", "x\ny"), ("a", "")] {
            assert_eq!(forward("a", option).wrong_option(), Some(option.0));
        }
        let file = |path: &str| FileInput { path: text(path), tag: text("a") }.is_path();
        assert!(file("/var/log/a-*.log") && !file("var/log/a") && !file("/a,/b") && !file("/a b") && !file("/${A}"));
        let unit = |unit: &str| JournalInput { unit: text(unit), tag: text("a") }.is_unit();
        assert!(unit("ssh.service") && unit("postgresql@15-main.service") && !unit("ssh") && !unit("a b.service"));
        assert!(is_tag(&text("prod.etcd")) && !is_tag(&text("prod.*")) && !is_tag(&text("")));
    }

    #[test]
    fn endpoints_have_a_port() {
        let wrong = |endpoint: &str| {
            LogSettings { endpoints: vec![endpoint.to_owned()], ..LogSettings::default() }.wrong_endpoint().is_some()
        };
        assert!(!wrong("10.0.0.1:2379") && !wrong("[fd00::1]:2379") && !wrong("etcd.example.org:2379"));
        assert!(wrong("10.0.0.1") && wrong("https://10.0.0.1:2379") && wrong("a:0") && wrong(""));
    }
}
