//! Options of `meantime ssd ctl`.

use std::path::PathBuf;

use clap::Args;

/// Options of `ssd ctl`.
#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The SSD's control socket
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// What to say, e.g. faults add lost-completion opcode=read times=1
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub words: Vec<String>,
}
