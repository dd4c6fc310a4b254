//! What a file of the inventory says while a member changes, and afterwards.

use std::path::PathBuf;

use super::Refusal;
use crate::{
    inventory::edit::{Described, Edit, EditError, apply},
    model::{Value, ValueMap},
};

/// A file of the inventory: as it is, as it is while both members exist, and as it is to be.
#[derive(Clone, Debug)]
pub struct Texts {
    pub path: PathBuf,
    pub original: String,
    pub during: String,
    pub after: String,
}

/// The member that comes.
#[derive(Clone, Debug)]
pub struct NewMember {
    pub name: String,
    pub to: Option<String>,
    pub ip: Option<String>,
    pub is_guest: bool,
    /// Leave the address to the cluster's pool.
    pub from_pool: bool,
    /// The interfaces of the member that it is like, as they were understood.
    pub interfaces: Vec<Value>,
}

impl NewMember {
    /// Its entry, like that of another member of which `base` is the entry.
    pub fn body(&self, base: &ValueMap) -> ValueMap {
        let mut body = base.clone();
        // What belongs to one machine alone.
        for key in ["address", "tls"] {
            body.remove(key);
        }
        for part in ["disk", "data_disk", "cloud_init"] {
            if let Some(part) =
                body.get_mut("guest").and_then(|guest| guest.get_mut(part)).and_then(Value::as_object_mut)
            {
                part.remove("volume");
            }
        }
        if self.from_pool {
            body.remove("interfaces");
        }
        for interface in body.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
            interface.as_object_mut().map(|interface| interface.remove("mac"));
        }
        for (name, value) in self.fields(&body) {
            body.insert(name.to_owned(), value);
        }
        if self.to.is_some() {
            body.remove("zone");
        }
        body
    }

    /// What differs from the entry that is there.
    pub fn fields(&self, body: &ValueMap) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        if let Some(to) = &self.to {
            fields.push(("hypervisor", to.clone().into()));
        }
        match &self.ip {
            Some(ip) if self.is_guest => fields.push(("interfaces", self.interfaces_at(ip, body))),
            Some(ip) => fields.push(("address", ip.clone().into())),
            None => {}
        }
        fields
    }

    fn interfaces_at(&self, ip: &str, body: &ValueMap) -> Value {
        let written = body.get("interfaces").and_then(Value::as_array).filter(|list| !list.is_empty());
        let mut interfaces = written.cloned().unwrap_or_else(|| plain(&self.interfaces));
        if let Some(first) = interfaces.first_mut().and_then(Value::as_object_mut) {
            let prefix =
                first.get("ip").and_then(Value::as_str).and_then(|ip| ip.split_once('/')).map(|(_, prefix)| prefix);
            let ip = match (ip.contains('/'), prefix) {
                (false, Some(prefix)) => format!("{ip}/{prefix}"),
                _ => ip.to_owned(),
            };
            first.insert("ip".into(), ip.into());
        }
        interfaces.into()
    }
}

/// Interfaces without the MAC addresses that follow from names.
fn plain(interfaces: &[Value]) -> Vec<Value> {
    let keep = |interface: &Value| {
        let fields = interface.as_object().into_iter().flatten();
        let fields =
            fields.filter(|(name, value)| *name != "mac" && !value.is_null() && **value != Value::Array(Vec::new()));
        Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    interfaces.iter().map(keep).collect()
}

impl Texts {
    pub fn unchanged(path: PathBuf, text: String) -> Self {
        Self { path, during: text.clone(), after: text.clone(), original: text }
    }

    /// A member stays under its name, elsewhere.
    pub fn moved(mut self, cluster: &str, new: &NewMember) -> Result<Self, Refusal> {
        let described = find(&self.original, cluster, &new.name)?;
        let fields = new.fields(&described.body());
        let text = edited(&self.original, &described.changed(&self.original, &fields));
        (self.during, self.after) = (text.clone(), text);
        Ok(self)
    }

    /// One more, behind another and like it.
    pub fn added(mut self, cluster: &str, like: &str, new: &NewMember) -> Result<Self, Refusal> {
        let text = add(&self.original, cluster, like, new)?;
        (self.during, self.after) = (text.clone(), text);
        Ok(self)
    }

    /// One goes, once all is done.
    pub fn removed(mut self, cluster: &str, old: &str) -> Result<Self, Refusal> {
        self.after = remove(&self.after, cluster, old)?;
        Ok(self)
    }

    /// The old one is not there meanwhile either.
    pub fn at_once(self) -> Self {
        Self { during: self.after.clone(), ..self }
    }

    /// What only the order of the members gives them is written down, so that it stays theirs.
    pub fn pinned(mut self, cluster: &str, pins: &[(String, ValueMap)]) -> Result<Self, Refusal> {
        for text in [&mut self.during, &mut self.after] {
            for (name, fields) in pins {
                let described = find(text, cluster, name)?;
                let fields: Vec<(&str, Value)> =
                    fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
                *text = edited(text, &described.changed(text, &fields));
            }
        }
        Ok(self)
    }
}

/// What must be written down of a member's interfaces and hypervisor.
pub fn pin(interfaces: &[Value], hypervisor: Option<&str>) -> ValueMap {
    let mut fields = ValueMap::new();
    if let Some(hypervisor) = hypervisor {
        fields.insert("hypervisor".into(), hypervisor.into());
        fields.insert("interfaces".into(), plain(interfaces).into());
    }
    fields
}

fn find(text: &str, cluster: &str, name: &str) -> Result<Described, Refusal> {
    Described::find(text, cluster, name).map_err(|error| {
        let help = match error {
            EditError::NotThere(_) => {
                "the inventory is generated, or the entry is in another file: describe the new member there first"
            }
            EditError::NotPlain(_) => "edit the inventory by hand: describe the new member in it first",
        };
        Refusal::input(format!("cannot edit the inventory for {name}: {error}"), help)
    })
}

fn edited(text: &str, edits: &[Edit]) -> String {
    // Edits of one entry are inside of the text they were made for.
    apply(text, edits).unwrap_or_else(|| text.to_owned())
}

fn add(text: &str, cluster: &str, like: &str, new: &NewMember) -> Result<String, Refusal> {
    let described = find(text, cluster, like)?;
    let body = new.body(&described.body());
    Ok(edited(text, &[described.followed_by(text, &new.name, &body)]))
}

fn remove(text: &str, cluster: &str, old: &str) -> Result<String, Refusal> {
    Ok(edited(text, &find(text, cluster, old)?.removed(text)))
}

/// The one place at which two texts differ.
pub(super) fn difference(before: &str, after: &str) -> Option<Edit> {
    if before == after {
        return None;
    }
    let same = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let start = (0..=same).rev().find(|at| before.is_char_boundary(*at) && after.is_char_boundary(*at)).unwrap_or(0);
    let (one, other) = (&before[start..], &after[start..]);
    let same = one.bytes().rev().zip(other.bytes().rev()).take_while(|(one, other)| one == other).count();
    let fits =
        |length: &usize| one.is_char_boundary(one.len() - length) && other.is_char_boundary(other.len() - length);
    let tail = (0..=same).rev().find(fits).unwrap_or(0);
    Some(Edit { start, end: before.len() - tail, text: after[start..after.len() - tail].to_owned() })
}

/// The name after the last one that is like this: `etcd-4` where `etcd-1` to `etcd-3` are taken.
pub fn next_name(like: &str, taken: &[&str]) -> String {
    let stem = like.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = |name: &str| name.strip_prefix(stem)?.parse::<u64>().ok();
    let (stem, width) = match stem.len() == like.len() {
        true => (format!("{like}-"), 1),
        false => (stem.to_owned(), like.len() - stem.len()),
    };
    let highest = taken.iter().filter_map(|name| number(name)).max().unwrap_or(1);
    let mut next = highest + 1;
    loop {
        let name = format!("{stem}{next:0width$}");
        if !taken.contains(&name.as_str()) {
            return name;
        }
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn new(name: &str, to: Option<&str>, ip: Option<&str>, is_guest: bool) -> NewMember {
        let own = |text: Option<&str>| text.map(str::to_owned);
        NewMember { name: name.into(), to: own(to), ip: own(ip), is_guest, from_pool: false, interfaces: Vec::new() }
    }

    const PLAIN: &str = "clusters:\n  prod:\n    members: # all\n      a: { address: 10.0.0.1 }\n      b: { address: 10.0.0.2 } # old\n      c: { address: 10.0.0.3 }\n";

    fn texts() -> Texts {
        Texts::unchanged("inventory.yaml".into(), PLAIN.into())
    }

    #[test]
    fn both_are_there_meanwhile_and_one_afterwards() {
        let texts =
            texts().added("prod", "b", &new("d", None, Some("10.0.0.4"), false)).unwrap().removed("prod", "b").unwrap();
        let line = "      d: { address: 10.0.0.4 }\n      c:";
        assert_eq!(texts.during, PLAIN.replace("      c:", line));
        assert_eq!(texts.after, texts.during.replace("      b: { address: 10.0.0.2 } # old\n", ""));
        let edit = difference(PLAIN, &texts.after).unwrap();
        assert_eq!(apply(PLAIN, &[edit]).unwrap(), texts.after);
    }

    #[test]
    fn a_guest_keeps_what_is_not_its_own() {
        let base = json!({
            "hypervisor": "hv1", "zone": "a", "interfaces": [{ "bridge": "br0", "ip": "10.0.0.1/24", "mac": "aa:00:00:00:00:01" }],
            "guest": { "memory": "4GiB", "disk": { "volume": "x.qcow2", "size": "9GiB" } },
        });
        let body = new("d", Some("hv2"), Some("10.0.0.9"), true).body(base.as_object().unwrap());
        let wanted = json!({
            "hypervisor": "hv2", "interfaces": [{ "bridge": "br0", "ip": "10.0.0.9/24" }],
            "guest": { "memory": "4GiB", "disk": { "size": "9GiB" } },
        });
        assert_eq!(Value::Object(body), wanted);
    }

    #[test]
    fn a_dead_one_stays_under_its_name() {
        let moved = texts().moved("prod", &new("b", None, Some("10.9.9.9"), false)).unwrap();
        assert_eq!(moved.after, PLAIN.replace("10.0.0.2", "10.9.9.9"));
        assert!(matches!(texts().moved("prod", &new("x", None, None, false)), Err(Refusal::Input { .. })));
    }

    #[test]
    fn names_go_on_where_they_end() {
        let taken = ["etcd-1", "etcd-2", "etcd-9", "hv1"];
        assert_eq!(next_name("etcd-2", &taken), "etcd-10");
        assert_eq!(next_name("n08", &["n07", "n08"]), "n09");
        assert_eq!(next_name("alpha", &["alpha"]), "alpha-2");
    }

    #[test]
    fn differences_are_one_place() {
        for (before, after) in [("abc", "abxc"), ("aXa", "aa"), ("ää", "äö"), ("", "x"), ("same\n", "same\nmore\n")]
        {
            let edit = difference(before, after).unwrap();
            assert_eq!(apply(before, &[edit]).as_deref(), Some(after), "{before} {after}");
        }
        assert_eq!(difference("a", "a"), None);
    }
}
