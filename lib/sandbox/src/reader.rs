//! What of the host's files the trainer's user may read: known before anything is started, from owner and mode.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid, getgroups};
use xt_core::manifest::intent::Profile;

use crate::identity::Way;

/// Who reads: the user that the trainer will be on the host.
#[derive(Clone, Debug)]
pub struct Reader {
    user: u32,
    groups: Vec<u32>,
    /// Whether it is whoever asks, with every right; nothing is then refused here.
    same: bool,
    own_root: bool,
}

impl Reader {
    /// Who reads under `profile`, when this process starts the run.
    pub fn of(profile: Profile) -> Self {
        let own_root = profile == Profile::Full;
        let same = profile == Profile::None;
        if Way::here(own_root) == Way::Dedicated {
            let user = Way::Dedicated.user();
            return Self { user, groups: vec![user], same, own_root };
        }
        let groups = getgroups().unwrap_or_default().into_iter().chain([getegid()]).map(nix::unistd::Gid::as_raw);
        Self { user: geteuid().as_raw(), groups: groups.collect(), same, own_root }
    }

    /// Its number.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// What this reader lacks at the file or folder: words for what it would have to be allowed.
    pub fn lacks(&self, found: &Metadata) -> Option<&'static str> {
        let (mask, words) = if found.is_dir() { (0o5, "read and enter") } else { (0o4, "read") };
        (!self.may(found, mask)).then_some(words)
    }

    /// The first folder above `path` that this reader cannot go through. In a file system of its own nobody goes through
    /// the folders of the host.
    pub fn stopped_above(&self, path: &Path) -> Option<PathBuf> {
        let real = path.canonicalize().ok().filter(|_| !self.own_root)?;
        let above = real.ancestors().skip(1).filter(|folder| !folder.metadata().is_ok_and(|found| self.may(&found, 1)));
        above.last().map(Path::to_path_buf)
    }

    fn may(&self, found: &Metadata, mask: u32) -> bool {
        let shift = match (found.uid() == self.user, self.groups.contains(&found.gid())) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        self.same || (found.mode() >> shift) & mask == mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn owner_group_and_others_are_told_apart_and_folders_must_be_entered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let found = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            std::fs::metadata(path).unwrap()
        };
        let (user, group) = (found(&file, 0o600).uid(), found(&file, 0o600).gid());
        let reader = |user, groups| Reader { user, groups, same: false, own_root: false };
        let (owner, member, other) = (reader(user, vec![]), reader(user + 1, vec![group]), reader(user + 1, vec![]));
        for (mode, expected) in
            [(0o600, [None, Some("read"), Some("read")]), (0o640, [None, None, Some("read")]), (0o644, [None; 3])]
        {
            let found = found(&file, mode);
            assert_eq!([&owner, &member, &other].map(|reader| reader.lacks(&found)), expected, "{mode:o}");
        }
        // A right of others is none of the owner's.
        assert_eq!(owner.lacks(&found(&file, 0o044)), Some("read"));
        assert_eq!(other.lacks(&found(folder.path(), 0o744)), Some("read and enter"));
        assert_eq!(other.stopped_above(&file), Some(folder.path().canonicalize().unwrap()));
        assert_eq!(Reader { own_root: true, ..other.clone() }.stopped_above(&file), None);
        assert_eq!(Reader { same: true, ..other }.lacks(&found(folder.path(), 0o700)), None);
    }
}
