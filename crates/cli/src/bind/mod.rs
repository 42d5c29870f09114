//! `meantime bind` and `unbind`: handing a controller to user space, and back.

pub(crate) mod user;

use std::process::ExitCode;

use meantime_hw::pci::{self, Bound, PciAddress, Sysfs, TakeOptions};

use crate::cli::{BindArgs, UnbindArgs};
use crate::devices::{describe, failure};
use crate::failure::{FAILED, Failure, warn};
use crate::output;
use crate::signal;

use user::User;

/// Runs `bind`.
pub(crate) fn bind(args: &BindArgs) -> Result<ExitCode, Failure> {
    let sysfs = Sysfs::default();
    let owner = args.owner.as_deref().map(User::find).transpose()?;
    let addresses = addresses(&sysfs, &args.devices)?;
    // A step that was begun is finished, or undone.
    signal::catch();
    let options = TakeOptions {
        owner: owner.as_ref().map(|user| (user.uid, user.gid)),
        force: args.force,
        unsafe_no_iommu: args.unsafe_no_iommu,
        together: addresses.clone(),
    };
    let mut done: Vec<Bound> = Vec::new();
    for address in addresses {
        match pci::bind(&sysfs, address, &options) {
            Ok(bound) => done.push(bound),
            Err(error) => {
                put_back(&sysfs, &done);
                return Err(failure(error));
            }
        }
        if let Some(code) = signal::exit_code() {
            put_back(&sysfs, &done);
            return Ok(ExitCode::from(code));
        }
    }
    output::print(&bound_text(&done, owner.as_ref()))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `unbind`.
pub(crate) fn unbind(args: &UnbindArgs) -> Result<ExitCode, Failure> {
    let sysfs = Sysfs::default();
    let addresses = addresses(&sysfs, &args.devices)?;
    signal::catch();
    let mut failed = false;
    for address in addresses {
        match pci::unbind(&sysfs, address) {
            Ok(returned) => output::print(&format!("{address}: {}\n", describe(&returned)))?,
            Err(error) => {
                failed = true;
                failure(error).show();
            }
        }
    }
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn addresses(sysfs: &Sysfs, names: &[String]) -> Result<Vec<PciAddress>, Failure> {
    let mut addresses = Vec::new();
    for name in names {
        let address = pci::resolve(sysfs, name).map_err(failure)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Returns to the kernel the devices that were bound here, when the command fails.
fn put_back(sysfs: &Sysfs, done: &[Bound]) {
    for bound in done.iter().filter(|bound| !bound.was_bound) {
        if let Err(error) = pci::unbind(sysfs, bound.address) {
            warn(error);
        }
    }
}

fn bound_text(done: &[Bound], owner: Option<&User>) -> String {
    let mut text = String::new();
    for Bound { address, node, former_driver, was_bound } in done {
        let node = node.display();
        text += &match former_driver {
            _ if *was_bound => format!("{address} was with vfio-pci before: {node}\n"),
            Some(driver) => {
                format!("{address} is with vfio-pci now, and no longer with {driver}: {node}\n")
            }
            None => format!("{address} is with vfio-pci now: {node}\n"),
        };
    }
    for Bound { address, .. } in done {
        text += &format!("  meantime info --device vfio:{address}\n");
    }
    let list: Vec<String> = done.iter().map(|bound| bound.address.to_string()).collect();
    let list = list.join(" ");
    text += &format!("It stays so until `sudo meantime unbind {list}`, or the next boot.\n");
    match owner {
        Some(User { name, uid, .. }) if *uid != 0 => {
            text += &format!(
                "It is {name}'s now. Memory that the SSD reads and writes is locked: where {name} \
                 runs programs, `ulimit -l` must say\n\
                 unlimited, or enough KiB. If it does not: \"{name} - memlock unlimited\" in \
                 /etc/security/limits.d/meantime.conf\n\
                 and a new login, or LimitMEMLOCK=infinity in a service's unit.\n"
            );
        }
        Some(_) => {}
        None => {
            text += "Only root can use it; another user can after `meantime bind … --owner USER`.\n"
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_after_binding() {
        let address: PciAddress = "0000:01:00.0".parse().unwrap();
        let bound = Bound {
            address,
            node: "/dev/vfio/7".into(),
            former_driver: Some("nvme".into()),
            was_bound: false,
        };
        let user = User { name: "eve".into(), uid: 1000, gid: 1000 };
        let text = bound_text(std::slice::from_ref(&bound), Some(&user));
        for words in [
            "0000:01:00.0 is with vfio-pci now, and no longer with nvme: /dev/vfio/7",
            "--device vfio:0000:01:00.0",
            "sudo meantime unbind 0000:01:00.0",
            "eve - memlock unlimited",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(bound_text(&[bound], None).contains("--owner USER"));
    }

    #[test]
    fn a_name_that_is_no_device_is_a_usage_error() {
        let failed = addresses(&Sysfs::default(), &["/dev/sda".to_owned()]).unwrap_err();
        assert_eq!(failed.exit_code(), ExitCode::from(crate::failure::USAGE));
    }
}
