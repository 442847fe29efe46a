//! The `bella` binary: parse, dispatch, one error line, exit code.

fn main() -> std::process::ExitCode {
    bella::cli::main()
}
