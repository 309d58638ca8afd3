//! Who may connect. Said at each start, and not in the cluster, since its owner may change.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use super::{
    error::{At as _, Result},
    home::Home,
};

/// Whoever may enter the socket's folder.
const ENTERING: &str = "local all,replication all trust\n";
/// Root alone, where it lends Postgres to a system user: other processes of that user could enter
/// the folder too.
const ROOT: &str = "local all,replication all peer map=root\n";
const ROOT_MAP: &str = "root root gensvc\n";

/// The files in a home.
pub(super) const FILES: [&str; 2] = ["pg_hba.conf", "pg_ident.conf"];
/// For a Postgres that is started in the home.
pub(super) const OPTIONS: &str = "-c hba_file=pg_hba.conf -c ident_file=pg_ident.conf";

pub(super) fn write(home: &Home) -> Result<()> {
    let rules = if home.account.is_lent() {
        ROOT
    } else {
        ENTERING
    };
    for (name, text) in FILES.into_iter().zip([rules, ROOT_MAP]) {
        let path = home.dir.join(name);
        fs::write(&path, text).at("write", &path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644)).at("open up", &path)?;
    }
    Ok(())
}
