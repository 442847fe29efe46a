//! The end of the process.

/// Makes the process end without the static destructors of its libraries, once `main` has returned and Rust has written
/// what it printed. Libtorch would take every operator out of its tables again, a third of the time of `bella --help`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn skip_static_destructors() {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void)
        -> libc::c_int;
    }
    extern "C" fn leave(code: libc::c_int, _: *mut libc::c_void) {
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(code) }
    }
    // SAFETY: `leave` ignores its argument. Handlers run in reverse order, so it runs before the destructors of the
    // libraries, which were loaded earlier.
    unsafe {
        on_exit(leave, std::ptr::null_mut());
    }
}

/// Does nothing, since only glibc tells a handler the exit code.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn skip_static_destructors() {}
