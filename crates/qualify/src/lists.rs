//! The lists of Identify: active namespaces, and a namespace's identifiers.

use meantime_nvme::AdminQueries as _;
use meantime_nvme_spec::identify::{IdentifyNamespace, NamespaceIdDescriptors, cns, nidt};
use zerocopy::IntoBytes as _;

use crate::identify::{is_at_least, read};
use crate::notes::{Notes, Outcome, Stop};
use crate::subject::Subject;

const LIST: &str = "1.4 §5.15.2.3";
const DESCRIPTORS: &str = "1.4 §5.15.2.4";

/// Checks both lists, and that a namespace that is not active reads as zeroes.
pub(crate) fn lists(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let controller = subject.device()?.controller().clone();
    let nsid = subject.device()?.namespace().nsid;
    let (version, most) = (controller.info().version, controller.info().namespace_count);
    if !is_at_least(version, 1, 1) {
        return Err(Stop::NotSupported("before 1.1 there are no lists".to_owned()));
    }
    let list = controller.identify_data(cns::ACTIVE_NAMESPACE_LIST, 0)?;
    let numbers: Vec<u32> = list
        .chunks_exact(4)
        .map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]))
        .collect();
    let count = numbers.iter().position(|&number| number == 0).unwrap_or(numbers.len());
    let (active, rest) = numbers.split_at(count);
    notes.fact("active namespaces", active.len().to_string());
    notes.require(active.is_sorted_by(|one, next| one < next), LIST, || {
        format!("the active namespaces are not in increasing order: {active:?}")
    });
    notes.require(rest.iter().all(|&number| number == 0), LIST, || {
        "there are entries past the end of the list of active namespaces".to_owned()
    });
    notes.require(active.iter().all(|&number| number <= most), LIST, || {
        format!("a namespace of {active:?} is above NN {most}")
    });
    notes.require(active.contains(&nsid), LIST, || {
        format!("namespace {nsid} can be used, and is not in the list of active namespaces")
    });
    // What is not active reads as zeroes.
    if let Some(unused) = (1..=most.min(4096)).find(|number| !active.contains(number)) {
        let raw: IdentifyNamespace = read(subject, cns::NAMESPACE, unused)?;
        notes.require(raw.as_bytes().iter().all(|&byte| byte == 0), "1.4 §5.15.2.1", || {
            format!("Identify of namespace {unused}, which is not active, is not all zeroes")
        });
    }
    if !is_at_least(version, 1, 3) {
        return Ok(());
    }
    let list = controller.identify_data(cns::NAMESPACE_ID_DESCRIPTORS, nsid)?;
    let raw: IdentifyNamespace = read(subject, cns::NAMESPACE, nsid)?;
    let mut kinds = Vec::new();
    for (kind, id) in NamespaceIdDescriptors::new(&list) {
        let (name, bytes, same) = match kind {
            nidt::EUI64 => ("EUI64", 8, Some(&raw.eui64[..])),
            nidt::NGUID => ("NGUID", 16, Some(&raw.nguid[..])),
            nidt::UUID => ("UUID", 16, None),
            _ => continue,
        };
        notes.require(!kinds.contains(&name), DESCRIPTORS, || {
            format!("the namespace has more than one descriptor of its {name}")
        });
        kinds.push(name);
        notes.require(id.len() == bytes, DESCRIPTORS, || {
            format!("the {name} has {} bytes: {bytes} are required", id.len())
        });
        notes.require(same.is_none_or(|same| same == id), DESCRIPTORS, || {
            format!("the {name} of the descriptors is not that of Identify Namespace")
        });
    }
    notes.require(!kinds.is_empty(), DESCRIPTORS, || {
        "the namespace has no identifier, although one is mandatory from 1.3 on".to_owned()
    });
    notes.fact("identifiers", kinds.join(", "));
    Ok(())
}
