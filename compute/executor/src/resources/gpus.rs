//! The GPUs of this node: found at the start of an executor, offered as the resource `gpu`, and
//! handed out to tasks one by one in the environment variables that the libraries of the vendors
//! read.

use std::process::Stdio;
use std::time::Duration;

use eyas_types::matching::Labels;
use tokio::process::Command;
use tokio::time::timeout;

/// A program that lists GPUs and has not ended after this time is killed, and counts as one that
/// found none.
const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// GPUs of a node; further ones are not offered.
const MAX_GPUS: usize = 1024;
/// What NVIDIA's libraries read.
const CUDA_VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// What AMD's run time reads. The other variables count in the devices that this one leaves.
const ROCR_VISIBLE: &str = "ROCR_VISIBLE_DEVICES";
const AMD_OTHERS: [&str; 2] = ["HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];

/// A maker of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuVendor {
    /// NVIDIA, or unknown: AMD's libraries read the same variable.
    #[default]
    Nvidia,
    /// AMD.
    Amd,
}

/// The GPUs that an executor hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    vendor: GpuVendor,
    /// Indices, UUIDs or names of parts of GPUs, as the variables have them.
    ids: Vec<String>,
    model: Option<String>,
    /// Memory of the smallest.
    memory_bytes: Option<u64>,
}

impl Gpus {
    /// The GPUs that the batch system has given to this process, or else all that the vendor's
    /// program lists.
    pub async fn find() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(ids) = variable(CUDA_VISIBLE) {
            return Gpus { ids: listed(&ids), ..Gpus::default() };
        }
        let of_amd = [ROCR_VISIBLE].into_iter().chain(AMD_OTHERS);
        if let Some(ids) = of_amd.into_iter().find_map(variable) {
            return Gpus { vendor: GpuVendor::Amd, ids: listed(&ids), ..Gpus::default() };
        }
        let query = ["--query-gpu=index,memory.total,name", "--format=csv,noheader,nounits"];
        if let Some(gpus) = output_of("nvidia-smi", &query).await.as_deref().and_then(nvidia) {
            return gpus;
        }
        if let Some(gpus) =
            output_of("rocm-smi", &["--showid", "--csv"]).await.as_deref().and_then(rocm)
        {
            return gpus;
        }
        output_of("amd-smi", &["list", "--csv"]).await.as_deref().and_then(amd).unwrap_or_default()
    }

    /// Number of GPUs.
    pub fn count(&self) -> u64 {
        self.ids.len() as u64
    }

    /// These GPUs, but only `count` of them; the first ones by their indices if fewer are known.
    pub fn limited(mut self, count: u64) -> Self {
        let count = usize::try_from(count).map_or(MAX_GPUS, |count| count.min(MAX_GPUS));
        if count > self.ids.len() {
            self.ids = (0..count).map(|index| index.to_string()).collect();
        }
        self.ids.truncate(count);
        self
    }

    /// One of several nearly equal parts of these GPUs, for executors that share them.
    pub fn part(mut self, number: usize, of: usize) -> Self {
        self.ids = crate::resources::part(&self.ids, number, of);
        self
    }

    /// Adds labels with the model and memory of the GPUs, where they are known and no such label is
    /// given.
    pub fn add_labels(&self, labels: &mut Labels) {
        let memory = self.memory_bytes.map(|bytes| ("gpu_memory", bytes.to_string()));
        let model = self.model.clone().map(|model| ("gpu_model", model));
        for (name, value) in memory.into_iter().chain(model).filter(|_| !self.ids.is_empty()) {
            labels.entry(name.to_owned()).or_insert(value);
        }
    }

    /// Environment variables of a task with these GPUs, and variables that it does not have.
    pub(crate) fn variables(
        &self,
        indices: &[u32],
    ) -> (Vec<(&'static str, String)>, &'static [&'static str]) {
        let ids: Vec<_> =
            indices.iter().filter_map(|index| self.ids.get(*index as usize).cloned()).collect();
        if ids.is_empty() {
            return (Vec::new(), &[]);
        }
        let ids = ids.join(",");
        match self.vendor {
            // Without the order, index 0 is the fastest GPU, and not the first one that
            // `nvidia-smi` lists.
            GpuVendor::Nvidia => {
                (vec![(CUDA_VISIBLE, ids), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into())], &[])
            }
            GpuVendor::Amd => (vec![(ROCR_VISIBLE, ids)], &AMD_OTHERS),
        }
    }
}

/// The ids in a variable of a batch system. As for the vendors' libraries, the list ends at an
/// invalid id.
fn listed(text: &str) -> Vec<String> {
    let ids = text.split(',').map(str::trim);
    let is_valid = |id: &&str| !id.is_empty() && !id.starts_with('-') && *id != "NoDevFiles";
    ids.take_while(is_valid).take(MAX_GPUS).map(str::to_owned).collect()
}

/// Whether a folder of `PATH` has this name. To start a program that is not there costs a process.
fn may_be_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH");
    folders.is_none_or(|folders| {
        std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
    })
}

/// What a program prints; `None` if it is not there, fails, or takes too long.
async fn output_of(program: &str, words: &[&str]) -> Option<String> {
    if !may_be_there(program) {
        return None;
    }
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match timeout(LIST_DEADLINE, command.output()).await {
        Ok(output) => output.ok().filter(|output| output.status.success())?,
        Err(_) => {
            tracing::warn!(
                "`{program}` has not listed GPUs within {} s and was killed; this executor offers \
                 none (--node-resource gpu=N offers N)",
                LIST_DEADLINE.as_secs()
            );
            return None;
        }
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The answer of `nvidia-smi`: lines of index, memory in MiB, and name.
fn nvidia(text: &str) -> Option<Gpus> {
    let mut gpus = Gpus::default();
    for line in text.lines().take(MAX_GPUS) {
        let mut fields = line.splitn(3, ',').map(str::trim);
        let Some(index) = fields.next().filter(|index| index.parse::<u32>().is_ok()) else {
            continue;
        };
        gpus.ids.push(index.to_owned());
        let memory = fields.next().and_then(|mib| mib.parse::<u64>().ok()).map(|mib| mib << 20);
        gpus.memory_bytes = [gpus.memory_bytes, memory].into_iter().flatten().min();
        gpus.model = gpus.model.or_else(|| fields.next().map(str::to_owned));
    }
    (!gpus.ids.is_empty()).then_some(gpus)
}

/// The answer of `rocm-smi --showid --csv`: a heading, and a line for each `cardN`.
fn rocm(text: &str) -> Option<Gpus> {
    of_amd(
        text.lines().filter(|line| {
            line.strip_prefix("card").is_some_and(|rest| rest.starts_with(is_digit))
        }),
    )
}

/// The answer of `amd-smi list --csv`: a heading, and a line for each GPU that begins with its
/// index.
fn amd(text: &str) -> Option<Gpus> {
    of_amd(text.lines().filter(|line| line.starts_with(is_digit)))
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

/// AMD's programs name cards by numbers of the kernel, which may have gaps; the run time counts
/// from 0.
fn of_amd<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Gpus> {
    let ids: Vec<_> =
        lines.take(MAX_GPUS).enumerate().map(|(index, _)| index.to_string()).collect();
    (!ids.is_empty()).then(|| Gpus { vendor: GpuVendor::Amd, ids, ..Gpus::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(gpus: &Gpus) -> Vec<&str> {
        gpus.ids.iter().map(String::as_str).collect()
    }

    #[test]
    fn variables_of_batch_systems_are_read_up_to_an_invalid_id() {
        for (text, expected) in [
            ("0,1", &["0", "1"][..]),
            ("GPU-8932f937, MIG-GPU-8932f937/1/0", &["GPU-8932f937", "MIG-GPU-8932f937/1/0"]),
            ("0,2,-1,1", &["0", "2"]),
            ("", &[]),
            ("NoDevFiles", &[]),
        ] {
            assert_eq!(listed(text), expected, "{text}");
        }
    }

    #[test]
    fn answers_of_the_programs_are_read() {
        let gpus = nvidia("0, 40960, NVIDIA A100\n1, 81920, NVIDIA A100, large\n").unwrap();
        assert_eq!((ids(&gpus), gpus.memory_bytes), (vec!["0", "1"], Some(40 << 30)));
        let mut labels = Labels::from([("gpu_model".to_owned(), "own".to_owned())]);
        gpus.add_labels(&mut labels);
        assert_eq!((&labels["gpu_memory"][..], &labels["gpu_model"][..]), ("42949672960", "own"));
        assert_eq!(nvidia("No devices were found\n"), None);
        let rocm = rocm("device,GPU ID\ncard1,0x740f\ncard2,0x740f\n\n").unwrap();
        assert_eq!((ids(&rocm), rocm.vendor), (vec!["0", "1"], GpuVendor::Amd));
        assert_eq!(ids(&amd("gpu,gpu_bdf,gpu_uuid\n0,0000:01:00.0,a\n").unwrap()), ["0"]);
    }

    #[test]
    fn a_task_gets_the_variables_of_its_gpus() {
        let gpus =
            Gpus { ids: vec!["GPU-a".into(), "GPU-b".into(), "MIG-c".into()], ..Gpus::default() };
        let expected = vec![
            ("CUDA_VISIBLE_DEVICES", "GPU-a,MIG-c".into()),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()),
        ];
        assert_eq!(gpus.variables(&[0, 2]).0, expected);
        assert_eq!(gpus.variables(&[]), (Vec::new(), &[][..]));
        assert_eq!(ids(&gpus.clone().limited(2)), ["GPU-a", "GPU-b"]);
        assert_eq!(ids(&gpus.clone().limited(4)), ["0", "1", "2", "3"]);
        assert_eq!(
            (ids(&gpus.clone().part(0, 2)), ids(&gpus.part(1, 2))),
            (vec!["GPU-a"], vec!["GPU-b", "MIG-c"])
        );
        let amd = Gpus { vendor: GpuVendor::Amd, ..Gpus::default() }.limited(2);
        assert_eq!(
            amd.variables(&[1]),
            (vec![("ROCR_VISIBLE_DEVICES", "1".into())], &AMD_OTHERS[..])
        );
    }
}
