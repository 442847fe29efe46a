//! Commands of bella in copies of a process that has loaded libtorch, but has done nothing else.
//!
//! Loading libtorch takes 0.2 s of a processor, most of what many commands take. So each process of tests makes a copy of itself (fork)
//! before its `main`, while it has one thread. For a command, that copy makes another, which takes the command's folder, environment,
//! input and outputs, and runs [`bella::cli::run`]. What is new to a program at its start is new to each command as well: libtorch's
//! threads, random numbers and settings, and bella's own statics. Only its arguments (`std::env::args`) and its program are those of
//! the test.

use std::ffi::{OsStr, OsString};
use std::fs::{File, read, write};
use std::io::{Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Output};

/// A command to run.
pub struct Asked<'a> {
    pub folder: &'a Path,
    pub words: &'a [OsString],
    pub variables: Vec<(OsString, OsString)>,
    pub input: &'a [u8],
}

/// Runs a command to its end.
///
/// # Errors
/// Fails if its files cannot be written or if the copy does not answer.
pub fn run(asked: &Asked) -> Result<Output> {
    let files = tempfile::tempdir()?;
    let path = |name: &str| files.path().join(name);
    write(path("input"), asked.input)?;
    let mut copy = UnixStream::connect_addr(&address(std::process::id())?)?;
    let fixed = [asked.folder.as_os_str(), files.path().as_os_str()];
    let variables = asked.variables.iter().flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]);
    send(&mut copy, &fixed)?;
    send(&mut copy, &asked.words.iter().map(OsString::as_os_str).collect::<Vec<_>>())?;
    send(&mut copy, &variables.collect::<Vec<_>>())?;
    let mut status = [0; 4];
    copy.read_exact(&mut status)?;
    let status = ExitStatus::from_raw(i32::from_le_bytes(status));
    Ok(Output { status, stdout: read(path("output"))?, stderr: read(path("errors"))? })
}

/// The address at which the first copy of a process listens. It has no file.
fn address(process: u32) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("bella-tests-{process}"))
}

/// Sends a list of texts: their number, and each with its length before it.
fn send(stream: &mut UnixStream, texts: &[&OsStr]) -> Result<()> {
    let mut bytes = (texts.len() as u32).to_le_bytes().to_vec();
    for text in texts {
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    stream.write_all(&bytes)
}

/// Returns the list that [`send`] has sent.
fn receive(stream: &mut UnixStream) -> Result<Vec<OsString>> {
    let count = number(stream)?;
    let mut text = || {
        let mut bytes = vec![0; number(stream)? as usize];
        stream.read_exact(&mut bytes)?;
        Ok(OsString::from_vec(bytes))
    };
    (0..count).map(|_| text()).collect()
}

fn number(stream: &mut UnixStream) -> Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The system calls this before `main`, once libtorch is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static COPY: extern "C" fn() = copy;

/// Makes the copy that waits for commands until the process that it was made of ends.
extern "C" fn copy() {
    let test = std::process::id();
    let listener = UnixListener::bind_addr(&address(test).unwrap()).unwrap();
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => wait_for_commands(test, &listener),
        copy => assert!(copy > 0, "{}", std::io::Error::last_os_error()),
    }
}

fn wait_for_commands(test: u32, listener: &UnixListener) -> ! {
    let silent = File::options().read(true).write(true).open("/dev/null").unwrap();
    // Whoever reads what the tests print waits until nobody holds the other end.
    (0..3).for_each(|standard| redirect(&silent, standard));
    // SAFETY: no pointers are passed. Ended copies need nobody to wait for them.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    // The process may have ended before this one could ask to end with it.
    while std::os::unix::process::parent_id() == test {
        let Ok((mut asking, _)) = listener.accept() else { end(1) };
        // SAFETY: this process has one thread.
        if unsafe { libc::fork() } == 0 {
            end(i32::from(answer(&mut asking).is_err()));
        }
    }
    end(0)
}

/// Runs the command that a test asks for in a further copy, and tells the test how it ended.
fn answer(test: &mut UnixStream) -> Result<()> {
    // SAFETY: no pointers are passed, and this process has one thread.
    let copy = unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::fork()
    };
    if copy == 0 {
        let code = command(test).map_or(i32::from(u8::MAX), |code| {
            (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).map_or(1, i32::from)
        });
        std::process::exit(code);
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    match unsafe { libc::waitpid(copy, &mut status, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => test.write_all(&status.to_le_bytes()),
    }
}

/// Becomes the process of a command and runs it.
fn command(test: &mut UnixStream) -> Result<ExitCode> {
    let (fixed, words, variables) = (receive(test)?, receive(test)?, receive(test)?);
    let [folder, files] = fixed.as_slice() else { return Err(std::io::ErrorKind::InvalidData.into()) };
    let files = Path::new(files);
    redirect(&File::open(files.join("input"))?, 0);
    redirect(&File::create(files.join("output"))?, 1);
    redirect(&File::create(files.join("errors"))?, 2);
    std::env::set_current_dir(folder)?;
    // SAFETY: this process has one thread. A Rust program ignores closed pipes from its start, which this process has not come to.
    unsafe {
        std::env::vars_os().for_each(|(name, _)| std::env::remove_var(name));
        variables.chunks_exact(2).for_each(|pair| std::env::set_var(&pair[0], &pair[1]));
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    bella::machine::child::skip_static_destructors();
    bella::machine::child::start_by(env!("CARGO_BIN_EXE_bella").into());
    Ok(bella::cli::run([OsString::from(env!("CARGO_BIN_EXE_bella"))].into_iter().chain(words)))
}

/// Makes a standard stream of this process mean `file`.
fn redirect(file: &File, standard: i32) {
    // SAFETY: the call takes numbers alone.
    assert!(unsafe { libc::dup2(file.as_raw_fd(), standard) } >= 0, "{}", std::io::Error::last_os_error());
}

/// Ends a copy without what a program does at its end: that belongs to the process of the tests.
fn end(code: i32) -> ! {
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(code) }
}
