//! Child processes, where the system has `/proc`.

use std::fs;

/// The living children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let parent = pid.to_string();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    all.filter(|child| stat(*child).get(1) == Some(&parent))
        .collect()
}

/// The fields of `/proc/PID/stat` after the name, which may contain anything: state, parent and so on.
pub fn stat(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}
