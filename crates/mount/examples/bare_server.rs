//! `bare_server DIR`: files in memory, mounted at `DIR` until umount(8). What a mount of Meantime
//! takes more than this is not the kernel's. `scripts/bench-mount.sh` measures both.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: bare_server DIR")?;
    let mut server = meantime_mount::BareServer::new(dir.as_ref())?;
    server.serve()?;
    Ok(())
}
