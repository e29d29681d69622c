//! Who can change a plugin's file: it is opened only if root and the effective user alone can.
//!
//! The rule, for the canonical path of a file:
//!
//! 1. The file and every folder above it belong to root or to the effective user: an owner can always change modes.
//! 2. None of them is writable by others or by its group. A user-private group (the group number is the user's own, as
//!    Debian and Fedora make it for their default umask of 002) has no other member, so its right to write is accepted.
//! 3. A folder that others may write to is accepted in one case: it is sticky, such as `/tmp`. Other users can add
//!    entries, but can neither remove nor rename the one that the path goes through, since by 1 both that entry and the
//!    folder belong to root or the effective user.
//!
//! A folder that is *searched* is held to 1 and 2 itself, sticky or not: in a folder like `/tmp` others decide which
//! names there are. What passes stays as it is against every other user, so the path can be opened again later (by
//! `dlopen`) without a race; `O_NOFOLLOW` or `/proc/self/fd` would add nothing. Access control lists show up in the
//! group's bits of the mode and are covered by 2.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const ROOT: u32 = 0;
/// First number of a person's account on Linux; below it a group of the same number may be anything.
const FIRST_USER: u32 = 1000;

/// What decides about one file or folder.
#[derive(Clone, Copy)]
struct Entry {
    owner: u32,
    group: u32,
    mode: u32,
}

impl From<&Metadata> for Entry {
    fn from(meta: &Metadata) -> Entry {
        Entry { owner: meta.uid(), group: meta.gid(), mode: meta.mode() }
    }
}

/// An error if users other than root and the effective one can change or replace this file (whose path is canonical).
pub(super) fn check_file(path: &Path, meta: &Metadata) -> Result<(), String> {
    let user = effective_user();
    refuse_writers(meta.into(), user).map_err(|why| format!("this file {why}"))?;
    check_folders(path.parent(), user)
}

/// An error if users other than root and the effective one can add files to this folder.
pub(super) fn check_folder(path: &Path) -> Result<(), String> {
    let user = effective_user();
    let path = path.canonicalize().map_err(|e| format!("cannot be found: {e}"))?;
    refuse_writers(entry(&path)?, user).map_err(|why| format!("this folder {why}"))?;
    check_folders(path.parent(), user)
}

/// An error if users other than root and the effective one can replace what is in this folder or in one above it.
fn check_folders(folder: Option<&Path>, user: u32) -> Result<(), String> {
    for folder in folder.into_iter().flat_map(Path::ancestors) {
        refuse_replacers(entry(folder)?, user)
            .map_err(|why| format!("its folder {} {why}", folder.display()))?;
    }
    Ok(())
}

/// Rules 1 and 2.
fn refuse_writers(entry: Entry, user: u32) -> Result<(), String> {
    let Entry { owner, group, mode } = entry;
    if owner != ROOT && owner != user {
        return Err(format!(
            "belongs to user {owner}, who could replace its code; plugins must belong to root or to you (user {user}): \
             copy it to a folder of yours, or change its owner (chown)"
        ));
    }
    let is_private = owner == user && group == user && user >= FIRST_USER;
    let (writers, remedy) = match () {
        _ if mode & OTHERS_WRITE != 0 => ("anyone", "chmod o-w"),
        _ if mode & GROUP_WRITES != 0 && !is_private => ("its group", "chmod g-w"),
        _ => return Ok(()),
    };
    let mode = mode & 0o7777;
    Err(format!(
        "has mode {mode:04o}: {writers} may write to it and so replace code; remove that right ({remedy})"
    ))
}

/// The rules for a folder on the way to a file that belongs to root or the user.
fn refuse_replacers(entry: Entry, user: u32) -> Result<(), String> {
    let others = OTHERS_WRITE | GROUP_WRITES;
    let mode = if entry.mode & STICKY != 0 { entry.mode & !others } else { entry.mode };
    refuse_writers(Entry { mode, ..entry }, user)
}

fn entry(path: &Path) -> Result<Entry, String> {
    let meta =
        path.symlink_metadata().map_err(|e| format!("its folder {} cannot be read: {e}", path.display()))?;
    Ok((&meta).into())
}

fn effective_user() -> u32 {
    // SAFETY: reads a number of this process, and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const USER: u32 = 1000;

    fn check(rule: fn(Entry, u32) -> Result<(), String>, user: u32, entry: (u32, u32, u32), problem: &str) {
        let (owner, group, mode) = entry;
        match rule(Entry { owner, group, mode }, user) {
            Ok(()) => assert_eq!(problem, "", "{entry:?} for user {user} was accepted"),
            Err(e) => assert!(!problem.is_empty() && e.contains(problem), "{entry:?} for user {user}: {e}"),
        }
    }

    #[test]
    fn files_belong_to_root_or_the_user_and_no_one_else_writes_to_them() {
        for user in [ROOT, USER] {
            check(refuse_writers, user, (ROOT, ROOT, 0o100755), "");
            check(refuse_writers, user, (user, 100, 0o100644), "");
            check(refuse_writers, user, (1001, 1001, 0o100644), "belongs to user 1001");
            check(refuse_writers, user, (65534, 65534, 0o100600), "belongs to user 65534");
            check(refuse_writers, user, (user, user, 0o100646), "anyone may write");
            check(refuse_writers, user, (user, 100, 0o100664), "its group may write");
            check(refuse_writers, user, (ROOT, ROOT, 0o100664), "chmod g-w");
        }
        check(refuse_writers, ROOT, (USER, USER, 0o100644), "belongs to user 1000");
    }

    #[test]
    fn the_group_of_one_user_may_write() {
        check(refuse_writers, USER, (USER, USER, 0o100664), "");
        check(refuse_writers, USER, (USER, USER, 0o040775), "");
        // Not root's group, not another's, not a number that a system group may have.
        check(refuse_writers, ROOT, (ROOT, ROOT, 0o040775), "its group");
        check(refuse_writers, USER, (ROOT, USER, 0o040775), "its group");
        check(refuse_writers, 100, (100, 100, 0o040775), "its group");
    }

    #[test]
    fn a_sticky_folder_may_be_passed_through_and_not_searched() {
        check(refuse_replacers, USER, (ROOT, ROOT, 0o041777), "");
        check(refuse_writers, USER, (ROOT, ROOT, 0o041777), "anyone may write");
        // The owner of a sticky folder can rename what others have in it.
        check(refuse_replacers, USER, (1001, 1001, 0o041777), "belongs to user 1001");
        check(refuse_replacers, USER, (USER, 100, 0o041777), "");
        check(refuse_replacers, USER, (ROOT, ROOT, 0o040777), "anyone may write");
    }

    #[test]
    fn a_folder_far_above_the_file_counts() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let file = deep.join("libllmrt_x.so");
        std::fs::write(&file, "x").unwrap();
        let file = file.canonicalize().unwrap();
        let found = || check_file(&file, &file.metadata().unwrap());
        assert_eq!(found(), Ok(()));
        assert_eq!(check_folder(&deep), Ok(()));

        let mode =
            |mode| std::fs::set_permissions(top.path().join("a"), PermissionsExt::from_mode(mode)).unwrap();
        mode(0o777);
        let e = found().unwrap_err();
        assert!(e.contains("/a has mode 0777: anyone may write") && e.contains("chmod o-w"), "{e}");
        assert_eq!(check_folder(&deep), Err(e));
        mode(0o755);
        assert_eq!(found(), Ok(()));
    }

    #[test]
    fn a_folder_that_others_add_to_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let e = check_folder(folder.path()).unwrap_err();
        assert!(e.starts_with("this folder has mode 1777: anyone may write"), "{e}");
    }
}
