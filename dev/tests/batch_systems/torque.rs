//! Pools on PBS, by Slurm's own commands of TORQUE, which answer in TORQUE's text and submit to a
//! real Slurm.

use std::path::Path;
use std::process::Command;

use crate::harness::{BatchBed, Testbed, is_tested};
use crate::slurm::start_slurm;
use crate::support::Home;

/// A Slurm, the commands of TORQUE, and a dispatcher that uses them.
struct OnTorque {
    bed: Testbed,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl BatchBed for OnTorque {
    const SYSTEM: &'static str = "pbs";

    fn home(&self) -> &Home {
        &self.home
    }
}

impl OnTorque {
    /// `None` where nothing is to be tested.
    fn start() -> Option<Self> {
        if !is_tested("Slurm's commands of TORQUE") {
            return None;
        }
        let home = Home::new();
        let commands = home.path("torque");
        let unpack = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/torque.sh");
        if !Command::new(unpack).arg(&commands).status().unwrap().success() {
            assert!(std::env::var_os("CI").is_none(), "the packages cannot be loaded");
            eprintln!("not tested: the packages of Slurm's commands of TORQUE cannot be loaded");
            return None;
        }
        let torque = OnTorque { bed: start_slurm(&home, "2"), home };
        let configuration = torque.bed.folder.join("slurm.conf").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", commands.join("bin").display());
        torque.start_dispatcher(
            &["--listen", "127.0.0.1:0"],
            &[("SLURM_CONF", configuration), ("PATH", path)],
        );
        Some(torque)
    }
}

impl Drop for OnTorque {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_job_scales_out_and_back() {
    let Some(torque) = OnTorque::start() else { return };
    torque.add_pool(&[
        "--max-nodes",
        "2",
        "--cpus",
        "2",
        "--idle-timeout",
        "1s",
        "--time-limit",
        "10min",
    ]);
    let job = ["run", "--array", "1-20", "--", "sh", "-c", "sleep 0.1; echo {}"];
    torque.run(&job).exits(0).says(&["20 of 20 tasks succeeded"]);
    torque.has_given_back_all();
    let bad = ["pool", "add", "pbs", "bad", "--min-nodes", "1", "--", "-q", "nowhere"];
    torque.run(&bad).exits(0);
    torque.wait_until("a request has failed", || {
        torque.run(&["pool", "show", "bad"]).exits(0).stdout.contains("invalid partition")
    });
}
