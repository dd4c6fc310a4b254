//! Files of the operator that are written at once.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes beside the file and renames, so that no reader ever sees half of it. The mode stays; a new file gets this one.
pub fn replace(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // The file itself, where a link points to it.
    let (file, mode) = match fs::canonicalize(file) {
        Ok(file) => {
            let mode = fs::metadata(&file)?.permissions().mode();
            (file, mode)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (file.to_owned(), mode),
        Err(error) => return Err(error),
    };
    let new = folder_of(&file).join(format!(".etcdrun-{:016x}", rand::random::<u64>()));
    let written = (|| {
        let mut output = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        output.write_all(bytes)?;
        output.set_permissions(fs::Permissions::from_mode(mode))?;
        output.sync_all()?;
        fs::rename(&new, &file)
    })();
    if written.is_err() {
        // There may be nothing to remove.
        let _ = fs::remove_file(&new);
    }
    written
}
