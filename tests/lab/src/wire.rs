//! A slow or lossy cable: carries Ethernet frames between two interfaces, each one a while after it came. Kernels
//! without netem have no other way, and it slows down everything alike: ARP, SSH, the guests' frames.

#![allow(unsafe_code, reason = "packet sockets have no safe wrapper; this is the only file that needs them")]

use std::{
    collections::VecDeque,
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// The largest frame that segmentation offload hands over, with its header.
const FRAME: usize = 10 + 14 + 65_536;
/// Beyond this a queue drops, as a real one would.
const QUEUE: usize = 20_000;

pub fn run(left: &str, right: &str, delay: Duration, loss: u8) -> Result<()> {
    let mut ends = [End::open(left)?, End::open(right)?];
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    println!("held");
    loop {
        wait_for_frames(&ends)?;
        let now = Instant::now();
        for from in 0..2 {
            while let Some(frame) = ends[from].receive()? {
                let to = &mut ends[1 - from];
                if !dice.falls_below(loss) && to.queue.len() < QUEUE {
                    to.queue.push_back((now + delay, frame));
                }
            }
        }
        ends.iter_mut().try_for_each(End::send_due)?;
    }
}

/// One interface, and the frames that wait to leave by it.
struct End {
    socket: OwnedFd,
    queue: VecDeque<(Instant, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl End {
    fn open(interface: &str) -> Result<Self> {
        let socket = packet_socket(interface).with_context(|| format!("could not listen on {interface}"))?;
        Ok(Self { socket, queue: VecDeque::new(), buffer: vec![0; FRAME] })
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        // SAFETY: the buffer is ours and as long as we say.
        let length = unsafe {
            libc::recv(self.socket.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(self.buffer[..length].to_vec())),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                // The interface may go down and come up again.
                error if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
                error => Err(error.into()),
            },
        }
    }

    fn send_due(&mut self) -> Result<()> {
        while self.queue.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            if let Some((_, frame)) = self.queue.pop_front() {
                // SAFETY: the frame is ours and as long as we say. A frame that cannot be sent is lost, as on a cable.
                unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            }
        }
        Ok(())
    }
}

/// Sleeps until a frame comes or one is due.
fn wait_for_frames(ends: &[End; 2]) -> Result<()> {
    let due = ends.iter().filter_map(|end| end.queue.front()).map(|(due, _)| *due).min();
    let rest = due.map(|due| due.saturating_duration_since(Instant::now()));
    let timeout =
        rest.map(|rest| libc::timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut waits =
        ends.each_ref().map(|end| libc::pollfd { fd: end.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: two descriptors, and a timeout that lives longer than the call.
    if unsafe { libc::ppoll(waits.as_mut_ptr(), 2, timeout, std::ptr::null()) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    Ok(())
}

/// A socket for all frames that come in by an interface, with the marks of what the sender left to be computed.
fn packet_socket(interface: &str) -> Result<OwnedFd> {
    let name = CString::new(interface)?;
    // SAFETY: a name that ends in zero; the descriptor is new, so it is ours alone; the structures are as long as we say.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol));
        if index == 0 || raw < 0 {
            return Err(io::Error::last_os_error().into());
        }
        let socket = OwnedFd::from_raw_fd(raw);
        set(&socket, libc::PACKET_VNET_HDR, &1_i32)?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        let mut membership: libc::packet_mreq = std::mem::zeroed();
        membership.mr_ifindex = index as i32;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        set(&socket, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        if libc::bind(raw, std::ptr::from_ref(&address).cast(), length) < 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(socket)
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> Result<()> {
    let length = size_of::<T>() as u32;
    // SAFETY: the value is as long as we say.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, std::ptr::from_ref(value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
}

/// Always the same throws, so that a lossy test is lossy in the same way each time.
struct Dice(u64);

impl Dice {
    fn falls_below(&mut self, percent: u8) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % 100 < u64::from(percent)
    }
}
