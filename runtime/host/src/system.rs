//! What the system permits this process: memory and processor time of its control group, locked memory, space on a disk.

pub use crate::load::mlock::memlock_limit;
pub use crate::plugin::cpu_features;

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Limits of the control groups that this process is in, as containers and services have them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Quota {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory that its processes have now, where there is a limit.
    pub memory_used: Option<u64>,
    /// Processors' worth of time.
    pub processors: Option<f64>,
}

/// The limits of this process; none where the system has no control groups.
pub fn quota() -> Quota {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Quota::read(&groups, Path::new("/sys/fs/cgroup"))
}

impl Quota {
    /// The smallest limits of the groups in `/proc/self/cgroup` and of those above them. `root` is where they are mounted.
    fn read(groups: &str, root: &Path) -> Quota {
        let mut quota = Quota::default();
        for line in groups.lines() {
            // ID:CONTROLLERS:PATH; version 2 has no controllers here.
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            for folder in folders(root, controllers, path) {
                let one = if controllers.is_empty() { of_v2(&folder) } else { of_v1(&folder) };
                quota = quota.and(one);
            }
        }
        quota
    }

    /// The smaller of each limit.
    fn and(self, other: Quota) -> Quota {
        let is_tighter = other.memory.is_some_and(|n| self.memory.is_none_or(|known| n < known));
        let (memory, memory_used) =
            if is_tighter { (other.memory, other.memory_used) } else { (self.memory, self.memory_used) };
        let processors = [self.processors, other.processors].into_iter().flatten().reduce(f64::min);
        Quota { memory, memory_used, processors }
    }
}

/// The folders of a group and of those above it. Inside a container the path may be that of the host: then there is only the root.
fn folders(root: &Path, controllers: &str, path: &str) -> Vec<PathBuf> {
    let root = root.join(controllers);
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(|part| root.join(part)).filter(|folder| folder.is_dir()).collect()
}

fn of_v2(folder: &Path) -> Quota {
    let memory = number(folder, "memory.max");
    let time = std::fs::read_to_string(folder.join("cpu.max")).unwrap_or_default();
    let processors = time.split_once(' ').and_then(|(time, period)| {
        Some(time.parse::<f64>().ok()? / period.trim().parse::<f64>().ok().filter(|&n| n > 0.0)?)
    });
    Quota { memory, memory_used: memory.and(number(folder, "memory.current")), processors }
}

fn of_v1(folder: &Path) -> Quota {
    /// No limit is a number near the largest.
    const NONE: u64 = 1 << 60;
    let memory = number(folder, "memory.limit_in_bytes").filter(|&n| n < NONE);
    let time = number(folder, "cpu.cfs_quota_us");
    let processors = time.zip(number(folder, "cpu.cfs_period_us").filter(|&n| n > 0));
    Quota {
        memory,
        memory_used: memory.and(number(folder, "memory.usage_in_bytes")),
        processors: processors.map(|(time, period)| time as f64 / period as f64),
    }
}

/// The number in a file; `None` for `max`, `-1` and what is not there.
fn number(folder: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// Bytes that this user can still write on the file system of a folder that is there.
pub fn free_space(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with NUL, and the call writes to the struct that it is given.
    let code = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a struct of integers that was zeroed, and that the call has filled.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quota of groups whose files are `NAME=TEXT`.
    fn check(groups: &str, files: &[(&str, &str)], expected: Quota) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(Quota::read(groups, root.path()), expected);
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_counts() {
        let files = [
            ("a/memory.max", "8192\n"),
            ("a/memory.current", "100\n"),
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "50\n"),
            ("a/b/cpu.max", "max 100000\n"),
        ];
        let expected = Quota { memory: Some(8192), memory_used: Some(100), processors: Some(1.5) };
        check("0::/a/b\n", &files, expected);
        check("0::/c\n", &files, Quota::default());
    }

    #[test]
    fn groups_of_version_1_have_a_folder_for_each_controller() {
        let files = [
            ("memory/x/memory.limit_in_bytes", "4096\n"),
            ("memory/x/memory.usage_in_bytes", "7\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        let expected = Quota { memory: Some(4096), memory_used: Some(7), processors: Some(2.0) };
        check("4:memory:/x\n3:cpu,cpuacct:/x\n", &files, expected);
    }

    #[test]
    fn a_disk_has_space_and_what_is_not_there_has_none() {
        assert!(free_space(Path::new("/")).is_ok());
        assert!(free_space(Path::new("/no/such/folder")).is_err());
    }
}
