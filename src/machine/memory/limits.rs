//! The limits that the operating system sets on this process's memory: control groups (both versions, including the
//! groups above the process's own) and resource limits (`ulimit -v`, `ulimit -d`).

use std::path::Path;

/// The files of one version of control groups.
struct Version {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` that count file pages, which the kernel drops before it kills a process.
    reclaimable: [&'static str; 2],
}

const V1: Version = Version {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

const V2: Version = Version {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// Returns the bytes left within the control groups of this process, which the other processes in them share; `None` if there is no
/// limit, or no way to read it.
pub(super) fn groups() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = own.lines().filter_map(|line| {
        let (version, path) = parse(line)?;
        let mount = Path::new(version.mount);
        // Within a container the path may be that of the host, which is not mounted here: then only the root counts.
        let folder = mount.join(path.trim_start_matches('/'));
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(mount));
        folders.filter_map(|folder| left_in(&version, folder)).min()
    });
    left.min()
}

/// Returns the version and path in a line of `/proc/self/cgroup`, if the line is about memory.
fn parse(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.is_empty() {
        return Some((V2, path));
    }
    controllers.split(',').any(|controller| controller == "memory").then_some((V1, path))
}

/// Returns the bytes left within one control group.
fn left_in(version: &Version, folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, used) = (number(version.limit)?, number(version.used)?);
    let stat = read("memory.stat").unwrap_or_default();
    let reclaimable: u64 = version.reclaimable.iter().map(|key| stat_line(&stat, key)).sum();
    Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
}

/// Returns the number in line `key` of a `memory.stat`; 0 if there is no such line.
fn stat_line(stat: &str, key: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Returns the bytes left within `ulimit -v` and `ulimit -d`, which each process has for itself; `None` if there is no limit.
#[cfg(target_os = "linux")]
pub(super) fn resources() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    // SAFETY: the call only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let mut pages = sizes.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0) * page);
    let (address_space, data) = (pages.next()?, pages.nth(4)?);
    let limit = |resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to `limit`, which outlives the call.
        let known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
        (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    };
    let left = [
        limit(libc::RLIMIT_AS).map(|limit| limit.saturating_sub(address_space)),
        limit(libc::RLIMIT_DATA).map(|limit| limit.saturating_sub(data)),
    ];
    left.into_iter().flatten().min()
}

/// Returns `None`, since only Linux reports how much of a limit is used.
#[cfg(not(target_os = "linux"))]
pub(super) fn resources() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_groups_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let path = folder.path();
        assert_eq!(left_in(&V2, path), None);
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 400\ninactive_file 200\nactive_file 50\n");
        assert_eq!(left_in(&V2, path), Some(550));
        write("memory.max", "max\n");
        assert_eq!(left_in(&V2, path), None, "no limit");
        write("memory.limit_in_bytes", "500\n");
        write("memory.usage_in_bytes", "900\n");
        assert_eq!(left_in(&V1, path), Some(0));
    }

    #[test]
    fn lines_name_the_version() {
        assert_eq!(parse("0::/user.slice").map(|(v, p)| (v.mount, p)), Some((V2.mount, "/user.slice")));
        assert_eq!(parse("4:memory:/jobs/7").map(|(v, p)| (v.mount, p)), Some((V1.mount, "/jobs/7")));
        assert!(parse("3:cpuset:/").is_none());
    }
}
