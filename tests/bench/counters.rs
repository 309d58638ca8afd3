//! What the kernel counts of a process, all its threads together.

use std::{collections::BTreeMap, fs};

use crate::children::{children, stat};

/// Of clock ticks in `/proc/PID/stat`, of which there are 100 a second wherever Linux runs.
const TICK_NS: u64 = 10_000_000;

/// What a process had used at one time.
#[derive(Debug, Default, Clone)]
pub struct Usage {
    /// Nanoseconds of CPU of each thread that lives.
    threads: BTreeMap<u32, u64>,
    /// Nanoseconds of CPU of its children that ended.
    ended: u64,
    /// How often it waited for something.
    pub waits: u64,
    /// Bytes of its own in memory.
    pub resident: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Self {
        let mut usage = Self::default();
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        for thread in threads.flatten() {
            let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let id = thread.file_name().to_string_lossy().parse().unwrap_or(0);
            let spent = read("schedstat");
            let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
            usage.threads.insert(id, spent.unwrap_or(0));
            usage.waits += field(&read("status"), "voluntary_ctxt_switches:");
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        usage.resident = field(&status, "VmRSS:") * 1024;
        let stat = stat(pid);
        // Its 16th and 17th fields, cutime and cstime.
        let ticks = |at: usize| {
            stat.get(at)
                .and_then(|ticks| ticks.parse().ok())
                .unwrap_or(0)
        };
        usage.ended = (ticks(13) + ticks(14)) * TICK_NS;
        usage
    }

    /// The process and those that it started, such as Postgres and its servers.
    pub fn of_family(pid: u32) -> Self {
        let mut usage = Self::of(pid);
        for child in children(pid) {
            let other = Self::of(child);
            usage.threads.extend(other.threads);
            usage.waits += other.waits;
        }
        usage
    }

    /// Nanoseconds of CPU since an earlier look. Of a thread that ended since, what it used
    /// after that look is lost; of a child process it is not.
    pub fn cpu_since(&self, earlier: &Self) -> u64 {
        let living = self.threads.iter().map(|(id, ns)| {
            let before = earlier.threads.get(id).copied().unwrap_or(0);
            ns.saturating_sub(before)
        });
        let gone = earlier.threads.iter();
        let gone = gone.filter(|(id, _)| !self.threads.contains_key(id));
        let counted: u64 = gone.map(|(_, ns)| ns).sum();
        let ended = (self.ended - earlier.ended).saturating_sub(counted);
        living.sum::<u64>() + ended
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
