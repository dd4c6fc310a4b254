//! The embedded playbooks and roles are read by a macro, which cannot tell cargo about new files.

fn main() {
    println!("cargo::rerun-if-changed=playbooks");
    println!("cargo::rerun-if-changed=roles");
}
