//! `eyas io mount`: programs that know nothing of eyas use a mount of a folder. They get what they
//! get in the folder, and their reads are put in order.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use crate::support::io::Order;
use crate::support::{
    CommandOutput, Home, SlowDisk, can_mount, can_use, finish, signal, wait_until,
};

/// A folder that is mounted, and the process that serves the mount.
struct OrderedFolder {
    process: Option<Child>,
    place: PathBuf,
}

impl OrderedFolder {
    /// Mounts a folder at a place, or over itself.
    #[track_caller]
    fn begin(order: &Order, folder: &Path, place: Option<&Path>, words: &[&str]) -> OrderedFolder {
        OrderedFolder::begin_with(command(order, folder, place, words), folder, place)
    }

    #[track_caller]
    fn begin_with(mut command: Command, folder: &Path, place: Option<&Path>) -> OrderedFolder {
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can start");
        let mut output = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a pipe can be read");
        let place = place.unwrap_or(folder).to_owned();
        let expected = format!(
            "eyas io mount: {} is ordered at {at}; end it with Ctrl-C or: umount {at}\n",
            folder.canonicalize().unwrap().display(),
            at = place.display()
        );
        if line != expected {
            signal(process.id(), Signal::TERM);
            let mut said = String::new();
            process.stderr.take().expect("piped").read_to_string(&mut said).unwrap();
            panic!("{line:?} is not {expected:?}; {said}");
        }
        process.stdout = Some(output.into_inner());
        OrderedFolder { process: Some(process), place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Waits until the agent is connected: before, requests are not ordered.
    #[track_caller]
    fn wait_until_ordered(&self, order: &Order) {
        wait_until("the agent is connected", || {
            fs::write(self.path("ordered"), "content").unwrap();
            order.requests() > 0
        });
    }

    fn id(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Ends the mount by Ctrl-C. Returns what it said.
    #[track_caller]
    fn end(mut self) -> CommandOutput {
        signal(self.id(), Signal::INT);
        let done = finish(self.process.take().expect("it runs")).exits(0);
        assert!(!is_mounted(&self.place));
        done
    }
}

impl Drop for OrderedFolder {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The test has failed.
            let _ = unmount(&self.place, UnmountFlags::DETACH);
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// `eyas io mount` on a node.
fn command(order: &Order, folder: &Path, place: Option<&Path>, words: &[&str]) -> Command {
    let runtime = order.home.path("n1");
    fs::create_dir_all(&runtime).expect("our own folder");
    let mut command = order.home.command(&[&["io", "mount"], words].concat());
    command.arg(folder).args(place).env("XDG_RUNTIME_DIR", runtime);
    command
}

fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has it");
    mounts.contains(&format!(" {} ", place.display()))
}

/// Runs a shell script in a folder, without the library.
#[track_caller]
fn shell(folder: &Path, script: &str) -> CommandOutput {
    let mut command = Command::new("bash");
    command.args(["-uo", "pipefail", "-c", script]).current_dir(folder).stdin(Stdio::null());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash is there"))
}

/// A coordinator, a folder with content, and an empty place; `None` if this user may not mount.
fn folders() -> Option<(Order, PathBuf, PathBuf)> {
    if !can_mount() {
        return None;
    }
    let home = Home::new();
    let [folder, place] = ["folder", "place"].map(|name| home.work().join(name));
    fs::create_dir(&folder).unwrap();
    fs::create_dir(&place).unwrap();
    Some((Order::new(home, &[]), folder, place))
}

#[test]
fn programs_without_the_library_read_in_order() {
    let order = Order::new(Home::new(), &[]);
    let Some(disk) = SlowDisk::new(&order.home).filter(|_| can_use(&["dd"])) else { return };
    let content: Vec<u8> = (0..24_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(disk.source().join("file"), &content).unwrap();
    let node = disk.mount("one", &["--seek-ms", "2"]);
    let place = order.home.work().join("place");
    fs::create_dir(&place).unwrap();
    let mount = OrderedFolder::begin(&order, &node.path(""), Some(&place), &[]);
    mount.wait_until_ordered(&order);
    let before = disk.count("seeks");
    // Four programs together read the whole file: each reads every fourth block.
    let script = "for first in 0 1 2 3; do
            (for block in $(seq $first 4 95); do
                dd if=file of=/dev/null bs=256k count=1 skip=$block status=none || exit 1
            done) &
        done; wait";
    shell(&place, script).exits(0);
    let seeks = disk.count("seeks") - before;
    assert!(seeks < 24, "the disk seeks {seeks} times for 96 blocks");
    assert!(fs::read(mount.path("file")).unwrap() == content);
    let status = order.status();
    let [storage] = &status["storages"].as_array().unwrap()[..] else { panic!("{status}") };
    let count = |name| storage[name].as_u64().unwrap();
    assert!(count("granted_bytes") >= 24 << 20 && count("grants") < 48, "{status}");
    mount.end();
}

#[test]
fn programs_under_the_library_are_ordered_once() {
    let order = Order::new(Home::new(), &[]);
    let Some(disk) = SlowDisk::new(&order.home) else { return };
    File::create(disk.source().join("file")).unwrap().set_len(8 << 20).unwrap();
    let node = disk.mount("one", &["--seek-ms", "1"]);
    let place = order.home.work().join("place");
    fs::create_dir(&place).unwrap();
    let mount = OrderedFolder::begin(&order, &node.path(""), Some(&place), &["--always"]);
    mount.wait_until_ordered(&order);
    let readers = [&[][..], &["--always"], &[]]
        .map(|words| order.reader("n1", words, &place.join("file"), 8));
    readers.into_iter().for_each(|reader| _ = finish(reader).exits(0));
    let status = order.status();
    let [storage] = &status["storages"].as_array().unwrap()[..] else {
        panic!("the mount itself is ordered, too: {status}")
    };
    assert_eq!(storage["name"], "slow-disk", "{status}");
    mount.end();
}

/// Prints what programs see of what they do with files.
const SEMANTICS: &str = r#"
umask 022
echo one > f; echo two >> f; cat f; truncate -s 3 f; cat f; echo; stat -c '%s %a' f
mv f g; ls; ln g h; stat -c %h g h; [ g -ef h ] && echo same
ln -s g s; ln s hs; readlink s hs; cat s
exec 3<> g; rm g h s hs; stat -Lc '%h %s' /proc/self/fd/3
echo more >&3; cat /proc/self/fd/3; exec 3>&-
touch -d 2001-02-03T04:05:06.789012345Z t; stat -c %.9Y t
touch -d 1960-02-03T04:05:06Z t; stat -c %.9Y t
chmod 4755 t; stat -c %a t; mkfifo p; (echo fifo > p &); cat p; stat -c %F p
(umask 027; touch u; mkdir v; chmod 2775 v); stat -c %a u v
mkdir d; touch d/f; rmdir d; echo $?; rm -r d; cat missing; echo $?; mkdir v; echo $?
python3 - << 'END'
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(old, new, flags):
    failed = libc.renameat2(-100, old.encode(), -100, new.encode(), flags)
    return errno.errorcode[ctypes.get_errno()] if failed else 'done'
for name in ['ra', 'rb']:
    open(name, 'w').write(name)
print(rename('ra', 'rb', 1), rename('ra', 'rb', 2), open('ra').read(), rename('ra', 'rc', 1))
file = os.open('sparse', os.O_RDWR | os.O_CREAT)
os.pwrite(file, b'x', 1 << 20)
print(os.lseek(file, 0, os.SEEK_DATA), os.lseek(file, 0, os.SEEK_HOLE))
os.posix_fallocate(file, 0, 2 << 20)
print(os.fstat(file).st_size)
mapped = mmap.mmap(file, 1 << 20)
mapped[0:3] = b'abc'
mapped.flush()
print(os.pread(file, 3, 0), open('sparse', 'rb').read(3))
appended = os.open('appended', os.O_CREAT | os.O_RDWR | os.O_APPEND)
for byte in [b'1', b'2']:
    os.write(appended, byte)
print(os.pwrite(appended, b'3', 0), open('appended').read())
print(os.copy_file_range(appended, file, 3, 0, 100), os.pread(file, 3, 100))
secret = os.open('secret', os.O_CREAT | os.O_RDWR, 0)
print(os.write(secret, b'ok'), os.ftruncate(secret, 1), os.pread(secret, 9, 0))
for attempt in [lambda: os.setxattr('t', 'user.name', b'value'),
                lambda: os.getxattr('t', 'user.name'), lambda: os.listxattr('t'),
                lambda: os.removexattr('t', 'user.name'), lambda: os.getxattr('t', 'user.name')]:
    try:
        print(attempt())
    except OSError as error:
        print(errno.errorcode[error.errno])
block = mmap.mmap(-1, 4096)
try:
    direct = os.open('direct', os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    block[:] = b'd' * 4096
    print(os.writev(direct, [block]), os.preadv(direct, [block], 0), os.fstat(direct).st_size)
except OSError as error:
    print(errno.errorcode[error.errno])
END
ls -A"#;

#[test]
fn files_behave_as_in_the_folder_itself() {
    let Some((order, folder, place)) = folders().filter(|_| can_use(&["python3"])) else { return };
    let plain = order.home.work().join("plain");
    fs::create_dir(&plain).unwrap();
    let mount = OrderedFolder::begin(&order, &folder, Some(&place), &["--always"]);
    let [expected, done] = [&plain, &place].map(|place| shell(place, SEMANTICS).exits(0));
    assert_eq!((done.stdout, done.stderr), (expected.stdout, expected.stderr));
    mount.end();
}

#[test]
fn a_copied_tree_is_the_same() {
    let Some((order, folder, place)) = folders() else { return };
    let tree = order.home.work().join("tree");
    fs::create_dir(&tree).unwrap();
    let script = "mkdir -p a/b/c 'with space' && for n in $(seq 300); do echo $n > a/b/f$n; done
        head -c 3000000 /dev/urandom > a/large && ln a/large a/b/c/link && ln -s ../large a/b/soft
        ln -s nowhere dangling && mkfifo pipe && chmod 600 a/b/f1 && chmod 1777 a/b/c
        chown 12:34 a/b/f2 && truncate -s 10M sparse && touch -d 2001-02-03T04:05:06.7Z a/b/f3
        : > 'with space/'$'line\nline'";
    shell(&tree, script).exits(0);
    let mount = OrderedFolder::begin(&order, &folder, Some(&place), &["--always"]);
    shell(&tree, &format!("cp -a . {}", place.display())).exits(0);
    let listing = "find . -mindepth 1 \\( -type f -printf '%s ' -o -true \\) \
                   -printf '%P %y %m %U:%G %n %T@ %l\\0' | sort -z | tr '\\0' '\\n'";
    let expected = shell(&tree, listing).exits(0).stdout;
    assert!(expected.contains("a/b/f300"));
    for copy in [&place, &folder] {
        shell(&tree, &format!("diff -r --no-dereference --exclude=pipe . {}", copy.display()))
            .exits(0);
        assert_eq!(shell(copy, listing).exits(0).stdout, expected);
    }
    // Folders and files that were removed below the mount are gone at once, and new ones are there.
    shell(&folder, "rm -r a/b && echo new > dangling2 && mv a/large moved").exits(0);
    shell(&place, "! ls a/b 2> /dev/null && cat dangling2 && ls moved").exits(0);
    mount.end();
}

#[test]
fn an_opened_file_has_what_others_have_written() {
    let Some((order, folder, place)) = folders() else { return };
    let mount = OrderedFolder::begin(&order, &folder, Some(&place), &[]);
    let (below, above) = (folder.join("file"), mount.path("file"));
    for number in 0..50 {
        // Once changed in place, with another size; once replaced.
        let content = "x".repeat(number + 1);
        if number % 2 == 0 {
            fs::write(&below, &content).unwrap();
        } else {
            fs::write(folder.join("new"), &content).unwrap();
            fs::rename(folder.join("new"), &below).unwrap();
        }
        assert_eq!(fs::read_to_string(&above).unwrap(), content);
        assert_eq!(fs::metadata(&above).unwrap().ino(), fs::metadata(&below).unwrap().ino());
        File::options().append(true).open(&above).unwrap().write_all(b"y").unwrap();
        assert_eq!(fs::read_to_string(&below).unwrap(), content + "y");
    }
    mount.end();
}

#[test]
fn a_folder_may_have_more_entries_than_the_server_may_have_descriptors() {
    let Some((order, folder, place)) = folders() else { return };
    let make = "mkdir -p d{1..30}/e
        for d in d*; do for n in {1..40}; do echo $d $n > $d/e/$n; done; done";
    shell(&folder, make).exits(0);
    let plain = command(&order, &folder, Some(&place), &[]);
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 200; exec \"$@\"", "-"]).arg(plain.get_program());
    command.args(plain.get_args()).current_dir(order.home.work());
    for (name, value) in plain.get_envs() {
        value.map(|value| command.env(name, value));
    }
    let mount = OrderedFolder::begin_with(command, &folder, Some(&place));
    // Programs that stay in a folder and keep files open, while others use everything.
    let script = "cd d7/e && exec 3< 1 4>> 2 && rm 1 && find ../.. -type f | xargs cat | wc -l
        cat <&3 && echo more >&4 && tail -n 1 2 && stat -Lc '%h' /dev/fd/3 && cat 3 && ls | wc -l
        cd ../.. && mv d8 moved && cat moved/e/4 && find . | wc -l";
    let read = shell(&place, script).exits(0).stdout;
    assert_eq!(read, "1199\nd7 1\nmore\n0\nd7 3\n39\nd8 4\n1260\n");
    mount.end();
}

#[test]
fn a_static_folder_is_looked_up_once() {
    let Some((order, folder, place)) = folders() else { return };
    shell(&folder, "mkdir d && echo old > d/f && echo old > d/g").exits(0);
    let mount = OrderedFolder::begin(&order, &folder, Some(&place), &["--static"]);
    let look = "stat -c '%n %s' d/f d/g new 2> /dev/null; ls d";
    // The kernel keeps the list of a folder after the second time.
    shell(&place, look).exits(0);
    let found = shell(&place, look).exits(0).stdout;
    assert_eq!(found, "d/f 4\nd/g 4\nf\ng\n");
    // What others change is not seen.
    shell(&folder, "echo newer > d/f && echo new > new && echo new > d/h && rm d/g").exits(0);
    assert_eq!(shell(&place, look).exits(0).stdout, found);
    // What programs change through the mount is seen.
    shell(&place, "echo newest > d/i && echo new > other && mv d/f d/k && rm d/h").exits(0);
    let found = shell(&place, "cat d/i d/k other && ls d").exits(0).stdout;
    assert_eq!(found, "newest\nnewer\nnew\ni\nk\n");
    mount.end();
}

#[test]
fn a_folder_can_be_mounted_over_itself() {
    let Some((order, folder, _)) = folders() else { return };
    fs::write(folder.join("file"), vec![7; 3 << 20]).unwrap();
    let (outside, number) =
        (fs::metadata(&folder).unwrap().dev(), fs::metadata(folder.join("file")));
    let mount = OrderedFolder::begin(&order, &folder, None, &["--always"]);
    let found = fs::metadata(folder.join("file")).unwrap();
    assert!(found.dev() != outside);
    assert_eq!(found.ino(), number.unwrap().ino());
    assert!(fs::read(folder.join("file")).unwrap() == vec![7; 3 << 20]);
    fs::write(folder.join("new"), "new").unwrap();
    mount.wait_until_ordered(&order);
    let again = command(&order, &folder, None, &[]);
    order.home.finish(again).exits(1).says(&["ordered already"]);
    mount.end();
    assert_eq!(fs::metadata(&folder).unwrap().dev(), outside);
    assert_eq!(fs::read_to_string(folder.join("new")).unwrap(), "new");
}

#[test]
fn what_was_mounted_before_stays_when_the_mount_ends() {
    let Some((order, folder, _)) = folders().filter(|_| can_use(&["mount", "umount"])) else {
        return;
    };
    let path = folder.display();
    shell(Path::new("/"), &format!("mount -t tmpfs below {path} && echo below > {path}/file"))
        .exits(0);
    for ends_itself in [true, false] {
        let mut mount = OrderedFolder::begin(&order, &folder, None, &[]);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "below\n");
        if ends_itself {
            signal(mount.id(), Signal::INT);
        } else {
            shell(Path::new("/"), &format!("umount {path}")).exits(0);
        }
        finish(mount.process.take().expect("it runs")).exits(0);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "below\n");
    }
    unmount(&folder, UnmountFlags::empty()).unwrap();
}

#[test]
fn wrong_places_are_refused() {
    let Some((order, folder, place)) = folders() else { return };
    let work = order.home.work();
    fs::write(work.join("file"), "").unwrap();
    fs::create_dir(folder.join("inside")).unwrap();
    let missing = work.join("missing");
    for (folder, place, words) in [
        (&missing, None, "cannot order"),
        (&work.join("file"), None, "is not a folder"),
        (&folder, Some(&missing), "cannot mount on"),
        (&folder, Some(&work.join("file")), "is not a folder"),
        (&place, Some(&folder), "it is not empty"),
        (&folder, Some(&folder.join("inside")), "the mount would contain itself"),
    ] {
        let command = command(&order, folder, place.map(PathBuf::as_path), &[]);
        order.home.finish(command).exits(1).says(&[words]);
    }
    // Without the library, nothing is mounted.
    let words = ["io", "serve-mount", folder.to_str().unwrap(), place.to_str().unwrap()];
    order.home.eyas(&words).exits(1).says(&["was not loaded", "eyas io mount"]);
    assert!(!is_mounted(&place));
}

#[test]
fn a_mount_ends_with_its_process_and_the_process_with_its_mount() {
    let Some((order, folder, place)) = folders().filter(|_| can_use(&["umount"])) else { return };
    let begin = || OrderedFolder::begin(&order, &folder, Some(&place), &[]);
    // An interrupt, also while a file is open.
    let mount = begin();
    fs::write(mount.path("file"), "content").unwrap();
    let mut open = File::open(mount.path("file")).unwrap();
    mount.end();
    assert!(open.read(&mut [0]).is_err());
    drop(open);
    // `umount`.
    let mut mount = begin();
    shell(Path::new("/"), &format!("umount {}", place.display())).exits(0);
    finish(mount.process.take().expect("it runs")).exits(0);
    // A crash: the guardian unmounts.
    let mount = begin();
    signal(mount.id(), Signal::KILL);
    wait_until("the folder is unmounted", || !is_mounted(&place));
    drop(mount);
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "content");
}

#[test]
fn a_read_that_waits_holds_up_no_other() {
    let order = Order::new(Home::new(), &[]);
    let Some(disk) = SlowDisk::new(&order.home).filter(|_| can_use(&["dd"])) else { return };
    File::create(disk.source().join("long")).unwrap().set_len(4 << 30).unwrap();
    let node = disk.mount("one", &["--seek-ms", "1", "--megabytes-per-second", "64"]);
    let place = order.home.work().join("place");
    fs::create_dir(&place).unwrap();
    let mount = OrderedFolder::begin(&order, &node.path(""), Some(&place), &[]);
    let mut readers: Vec<Child> = (0..8)
        .map(|first| {
            let skip = format!("skip={}", first * 512);
            let words = ["if=long", "of=/dev/null", "bs=1M", "status=none", &skip];
            Command::new("dd").args(words).current_dir(&place).spawn().unwrap()
        })
        .collect();
    order.wait_for_requests();
    let began = Instant::now();
    for number in 0..10 {
        fs::create_dir(mount.path(&number.to_string())).unwrap();
    }
    // The readers alone need a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "folders wait for reads");
    for reader in &mut readers {
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    mount.end();
}
