//! Users, roles and permissions: what is missing, and making it so.
//!
//! Asking whether authentication is on is a proposal, so it is told by what an anonymous call is answered.

use std::collections::BTreeSet;

use etcd_client::{Client, PermissionType, UserAddOptions};

use super::{EtcdError, MemberClient};
use crate::inventory::sections::{Access, AuthRole, AuthSection, Permission, Presence};

/// One thing to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    AddRole(String),
    Grant(String, Range, Access),
    Revoke(String, Range),
    AddUser(String, Option<String>),
    Password(String, String),
    GrantRole(String, String),
    RevokeRole(String, String),
    DropUser(String),
    DropRole(String),
    Enable,
}

/// Keys from the first to, but without, the last; one key if that is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    key: Vec<u8>,
    end: Vec<u8>,
}

/// What is missing, and what the named users and roles have and are to have, line by line. No line has a password.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub changes: Vec<Change>,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

impl Range {
    fn of(permission: &Permission) -> Self {
        match (&permission.prefix, &permission.key) {
            (Some(prefix), _) if prefix.is_empty() => Self { key: vec![0], end: vec![0] },
            (Some(prefix), _) => Self { key: prefix.clone().into_bytes(), end: behind(prefix.as_bytes()) },
            (None, key) => Self {
                key: key.clone().unwrap_or_default().into_bytes(),
                end: permission.range_end.clone().unwrap_or_default().into_bytes(),
            },
        }
    }
}

/// The first key behind all that begin with the prefix.
pub(super) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = String::from_utf8_lossy(&self.key);
        match (self.key.as_slice(), self.end.as_slice()) {
            ([0], [0]) => f.write_str("all keys"),
            (_, []) => write!(f, "{key}"),
            (_, [0]) => write!(f, "{key} and all keys behind it"),
            (from, end) if end == behind(from) => write!(f, "{key}*"),
            (_, end) => write!(f, "{key} to {}", String::from_utf8_lossy(end)),
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AddRole(role) => write!(f, "role {role}"),
            Self::Grant(role, range, access) => write!(f, "role {role}: {} on {range}", word(*access)),
            Self::Revoke(role, range) => write!(f, "role {role}: nothing on {range}"),
            Self::AddUser(user, _) => write!(f, "user {user}"),
            Self::Password(user, _) => write!(f, "user {user}: another password"),
            Self::GrantRole(user, role) => write!(f, "user {user}: role {role}"),
            Self::RevokeRole(user, role) => write!(f, "user {user}: without role {role}"),
            Self::DropUser(user) => write!(f, "user {user}: removed"),
            Self::DropRole(role) => write!(f, "role {role}: removed"),
            Self::Enable => f.write_str("authentication on"),
        }
    }
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Readwrite => "readwrite",
        Access::Read => "read",
        Access::Write => "write",
    }
}

/// Root's password, where that is a matter of passwords: the one that it has, and the one that it is to have.
#[derive(Clone, Copy)]
pub struct RootPassword<'a> {
    pub has: &'a str,
    pub wanted: &'a str,
}

/// What is missing. `stranger` is a client that belongs to no user.
pub async fn plan(
    member: &MemberClient,
    auth: &AuthSection,
    root_password: Option<RootPassword<'_>>,
    stranger: &MemberClient,
) -> Result<Plan, EtcdError> {
    let is_on = is_on(stranger).await?;
    let mut client = member.client().await?;
    let mut plan = Plan::default();
    let roles: BTreeSet<String> = member.bounded(client.role_list()).await?.roles().iter().cloned().collect();
    let users: BTreeSet<String> = member.bounded(client.user_list()).await?.users().iter().cloned().collect();
    let mut removed = Vec::new();
    let root = ("root".to_owned(), AuthRole::default());
    let wanted_roles = auth.roles.iter().map(|(name, role)| (name.clone(), role.clone().unwrap_or_default()));
    for (name, role) in [root].into_iter().chain(wanted_roles.filter(|(name, _)| name != "root")) {
        let has = match roles.contains(&name) && name != "root" {
            true => permissions(member, &mut client, &name).await?,
            false => Vec::new(),
        };
        plan.before.extend(roles.contains(&name).then(|| role_lines(&name, &has)).into_iter().flatten());
        if role.state == Presence::Absent {
            removed.extend(roles.contains(&name).then_some(Change::DropRole(name)));
            continue;
        }
        if !roles.contains(&name) {
            plan.changes.push(Change::AddRole(name.clone()));
        }
        plan_role(&name, &has, &role.permissions, &mut plan);
    }
    let root_user = auth.users.get("root").cloned().flatten().unwrap_or_default();
    let wanted = root_password.map(|password| password.wanted.to_owned());
    let mut wanted_users = vec![("root".to_owned(), wanted, root_user.roles, Presence::Present)];
    for (name, user) in auth.users.iter().filter(|(name, _)| *name != "root") {
        let user = user.clone().unwrap_or_default();
        wanted_users.push((name.clone(), user.password, user.roles, user.state));
    }
    for (name, password, mut roles, state) in wanted_users {
        if name == "root" && !roles.iter().any(|role| role == "root") {
            roles.push("root".into());
        }
        let has: Option<BTreeSet<String>> = match users.contains(&name) {
            true => Some(member.bounded(client.user_get(name.as_str())).await?.roles().iter().cloned().collect()),
            false => None,
        };
        plan.before.extend(has.iter().flat_map(|has| user_lines(&name, has)));
        if state == Presence::Absent {
            removed.extend(has.map(|_| Change::DropUser(name)));
            continue;
        }
        let wanted: BTreeSet<String> = roles.into_iter().collect();
        plan.after.extend(user_lines(&name, &wanted));
        match &has {
            None => plan.changes.push(Change::AddUser(name.clone(), password)),
            Some(_) => {
                // Root's comes last.
                if let Some(password) = password.filter(|_| is_on && name != "root")
                    && !member.accepts(&name, &password).await?
                {
                    plan.change_password(&name, password);
                }
            }
        }
        let has = has.unwrap_or_default();
        plan.changes.extend(wanted.difference(&has).map(|role| Change::GrantRole(name.clone(), role.clone())));
        plan.changes.extend(has.difference(&wanted).map(|role| Change::RevokeRole(name.clone(), role.clone())));
    }
    plan.changes.extend(removed);
    // Whoever is logged in with the old one is not any more.
    if let Some(RootPassword { has, wanted }) = root_password.filter(|_| users.contains("root"))
        && has != wanted
    {
        plan.change_password("root", wanted.into());
    }
    if !is_on {
        plan.changes.push(Change::Enable);
        plan.before.push("authentication off".into());
        plan.after.push("authentication on".into());
    }
    Ok(plan)
}

impl Plan {
    fn change_password(&mut self, user: &str, password: String) {
        self.changes.push(Change::Password(user.to_owned(), password));
        self.before.push(format!("user {user}: password"));
        self.after.push(format!("user {user}: another password"));
    }
}

fn role_lines(name: &str, permissions: &[(Range, Access)]) -> Vec<String> {
    let mut permissions: Vec<_> = permissions.iter().collect();
    permissions.sort_by(|(one, _), (other, _)| one.cmp(other));
    let line = |(range, access): &(Range, Access)| format!("role {name}: {} on {range}", word(*access));
    [format!("role {name}")].into_iter().chain(permissions.into_iter().map(line)).collect()
}

fn user_lines(name: &str, roles: &BTreeSet<String>) -> Vec<String> {
    [format!("user {name}")].into_iter().chain(roles.iter().map(|role| format!("user {name}: role {role}"))).collect()
}

/// Whether authentication is on, as somebody sees it who is no user of etcd.
async fn is_on(stranger: &MemberClient) -> Result<bool, EtcdError> {
    let mut client = stranger.client().await?;
    match stranger.bounded(client.user_list()).await {
        Ok(_) => Ok(false),
        Err(EtcdError::Refused { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn permissions(
    member: &MemberClient,
    client: &mut Client,
    role: &str,
) -> Result<Vec<(Range, Access)>, EtcdError> {
    let answer = member.bounded(client.role_get(role)).await?;
    let permission = |permission: etcd_client::Permission| {
        let range = Range { key: permission.key().to_vec(), end: permission.range_end().to_vec() };
        let access = match permission.get_type() {
            x if x == PermissionType::Read as i32 => Access::Read,
            x if x == PermissionType::Write as i32 => Access::Write,
            _ => Access::Readwrite,
        };
        (range, access)
    };
    Ok(answer.permissions().into_iter().map(permission).collect())
}

fn plan_role(name: &str, has: &[(Range, Access)], wanted: &[Permission], plan: &mut Plan) {
    let wanted: Vec<(Range, Access)> =
        wanted.iter().map(|permission| (Range::of(permission), permission.access.unwrap_or_default())).collect();
    plan.after.extend(role_lines(name, &wanted));
    for (range, access) in wanted.iter().filter(|wish| !has.contains(wish)) {
        plan.changes.push(Change::Grant(name.to_owned(), range.clone(), *access));
    }
    for (range, _) in has.iter().filter(|(range, _)| !wanted.iter().any(|(wish, _)| wish == range)) {
        plan.changes.push(Change::Revoke(name.to_owned(), range.clone()));
    }
}

/// Makes the changes, one after the other. What somebody else has done meanwhile is fine.
pub async fn apply(member: &MemberClient, plan: &Plan) -> Result<(), EtcdError> {
    let mut client = member.client().await?;
    for change in &plan.changes {
        match make(member, &mut client, change).await {
            Ok(()) => {}
            Err(EtcdError::Refused { reason, .. }) if is_done(change, &reason) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a refusal says that it is so already.
fn is_done(change: &Change, reason: &str) -> bool {
    match change {
        Change::DropUser(_) | Change::DropRole(_) => reason.contains("name not found"),
        _ => reason.contains("already exists"),
    }
}

async fn make(member: &MemberClient, client: &mut Client, change: &Change) -> Result<(), EtcdError> {
    match change {
        Change::AddRole(role) => member.bounded(client.role_add(role.as_str())).await.map(drop),
        Change::Grant(role, range, access) => {
            let kind = match access {
                Access::Readwrite => PermissionType::Readwrite,
                Access::Read => PermissionType::Read,
                Access::Write => PermissionType::Write,
            };
            let permission = etcd_client::Permission::new(kind, range.key.clone()).with_range_end(range.end.clone());
            member.bounded(client.role_grant_permission(role.as_str(), permission)).await.map(drop)
        }
        Change::Revoke(role, range) => {
            let options = etcd_client::RoleRevokePermissionOptions::new().with_range_end(range.end.clone());
            member
                .bounded(client.role_revoke_permission(role.as_str(), range.key.clone(), Some(options)))
                .await
                .map(drop)
        }
        Change::AddUser(user, password) => {
            let options = password.is_none().then(|| UserAddOptions::new().with_no_pwd());
            let password = password.clone().unwrap_or_default();
            member.bounded(client.user_add(user.as_str(), password, options)).await.map(drop)
        }
        Change::Password(user, password) => {
            member.bounded(client.user_change_password(user.as_str(), password.as_str())).await.map(drop)
        }
        Change::GrantRole(user, role) => {
            member.bounded(client.user_grant_role(user.as_str(), role.as_str())).await.map(drop)
        }
        Change::RevokeRole(user, role) => {
            member.bounded(client.user_revoke_role(user.as_str(), role.as_str())).await.map(drop)
        }
        Change::DropUser(user) => member.bounded(client.user_delete(user.as_str())).await.map(drop),
        Change::DropRole(role) => member.bounded(client.role_delete(role.as_str())).await.map(drop),
        Change::Enable => member.bounded(client.auth_enable()).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(key: &str, end: &str) -> Permission {
        let end = (!end.is_empty()).then(|| end.to_owned());
        Permission { key: Some(key.into()), range_end: end, ..Permission::default() }
    }

    #[test]
    fn a_role_gets_what_it_lacks_and_loses_the_rest() {
        let (one, two) = (Range::of(&permission("/a", "")), Range::of(&permission("/b", "/d")));
        let has = [(one.clone(), Access::Readwrite), (two.clone(), Access::Read)];
        let mut plan = Plan::default();
        plan_role("app", &has, &[Permission { access: Some(Access::Read), ..permission("/a", "") }], &mut plan);
        assert_eq!(plan.changes, [Change::Grant("app".into(), one, Access::Read), Change::Revoke("app".into(), two)]);
        assert_eq!(plan.after, ["role app", "role app: read on /a"]);
        assert_eq!(role_lines("app", &has), ["role app", "role app: readwrite on /a", "role app: read on /b to /d"]);
    }

    #[test]
    fn ranges_are_told_as_they_are_meant() {
        let told = |permission: &Permission| Range::of(permission).to_string();
        let prefix = |prefix: &str| Permission { prefix: Some(prefix.into()), ..Permission::default() };
        assert_eq!(told(&prefix("")), "all keys");
        assert_eq!(told(&prefix("/a/")), "/a/*");
        assert_eq!(told(&permission("/a", "/c")), "/a to /c");
        assert_eq!(told(&permission("/a", "\0")), "/a and all keys behind it");
    }

    #[test]
    fn no_line_has_a_password() {
        let mut plan = Plan::default();
        plan.change_password("writer", "not-so-secret".into());
        let lines: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
        assert!([lines, plan.before, plan.after].concat().iter().all(|line| !line.contains("not-so")));
    }
}
