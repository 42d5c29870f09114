//! Queues: created, deleted, full, wrapped.

use meantime_block::{BlockDevice, ChannelError, ChannelOptions};
use meantime_completion::Policy;
use meantime_nvme::Error;

use crate::notes::{Notes, Outcome, Stop};
use crate::subject::{Subject, read_scattered};

/// Creates all the queue pairs that the controller allows, reads by each, and deletes and creates
/// them in another order.
pub(crate) fn made(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let device = subject.device()?;
    let limit = usize::from(device.controller().info().io_queues);
    let options = ChannelOptions {
        depth: 1,
        policy: Some(Policy::Poll),
        interrupt: Some(false),
        class: None,
    };
    let mut channels = Vec::new();
    loop {
        match device.channel(&options) {
            Ok(channel) => channels.push(channel),
            Err(ChannelError::Nvme(Error::NoQueue { .. })) => break,
            Err(error) => return Err(error.into()),
        }
        subject.go_on()?;
    }
    notes.fact("queue pairs at once", channels.len().to_string());
    notes.require(channels.len() == limit, "1.4 §5.21.1.7", || {
        format!("{} queue pairs could be created where {limit} were granted", channels.len())
    });
    let Some(first) = channels.first_mut() else {
        return Err(Stop::Failed("no queue pair could be created".to_owned()));
    };
    let (blocks, expected) = subject.content(first)?;
    for round in 0..3 {
        for (at, channel) in channels.iter_mut().enumerate() {
            let lba = at as u64 % blocks;
            read_scattered(channel, std::iter::once(lba), &expected, notes, &mut || {})?;
            notes.undisturbed("polled", &channel.counters().polled);
        }
        // Every second one goes, from the first or from the last on, and comes back.
        let count = channels.len();
        let mut at = 0;
        channels.retain(|_| {
            at += 1;
            (at + round) % 2 == 0
        });
        while channels.len() < count {
            channels.push(device.channel(&options)?);
        }
    }
    Ok(())
}

/// Fills queues of several sizes to the last entry, and goes round their rings.
pub(crate) fn full(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let most = subject.device()?.max_depth();
    let mut depths: Vec<u16> = vec![1, 2, 3, 4, 7, 8, 15, 31, 32, 63, 64, 127, 255, 1022, most];
    depths.retain(|&depth| depth <= most);
    depths.sort_unstable();
    depths.dedup();
    for &depth in &depths {
        let mut channel = subject.polled(depth)?;
        let (blocks, expected) = subject.content(&mut channel)?;
        // Twice round the ring, whose entries are a power of two, and some more.
        let reads = 3 * u64::from(depth.next_power_of_two()) + 5;
        let lbas = (0..reads).map(|at| at * 7 % blocks);
        read_scattered(&mut channel, lbas, &expected, notes, &mut || {})?;
        notes.undisturbed(&format!("polled, depth {depth}"), &channel.counters().polled);
        subject.go_on()?;
    }
    let words: Vec<String> = depths.iter().map(u16::to_string).collect();
    notes.fact("depths", words.join(", "));
    Ok(())
}
