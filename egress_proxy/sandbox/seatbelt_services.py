"""The part of a Seatbelt profile that no policy changes: what programs of macOS need in order to work.

Text only. A service is here when common programs fail without it and it sends nothing to another machine for
its caller; those that do stand in groups of their own. Next: seatbelt.py (the rest of a profile).
"""

PROCESSES = """\
(allow process-exec)
(allow process-fork)
; What a program may ask of others is not part of the default, hence both lines.
(deny process-info*)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))"""

SYSTEM = """\
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name-prefix "kern.os")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg")
  (sysctl-name-prefix "kern.proc.pid.")
  (sysctl-name-prefix "net.routetable."))
; Java asks for its CPU's grade with a buffer, which counts as a write.
(allow sysctl-write (sysctl-name "kern.grade_cputype"))
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.logd")
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.cfprefsd.daemon")
  (global-name "com.apple.cfprefsd.agent")
  (local-name "com.apple.cfprefsd.agent")
  (global-name "com.apple.PowerManagement.control"))
(allow user-preference-read)
(allow iokit-open (iokit-registry-entry-class "RootDomainUserClient"))
(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))
; Semaphores of Python's multiprocessing; the registry of OpenMP.
(allow ipc-posix-sem)
(allow ipc-posix-shm-read* (ipc-posix-name-prefix "apple.cfprefs."))
(allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-unlink
  (ipc-posix-name-regex #"^/__KMP_REGISTERED_LIB_[0-9]+$"))"""

FILES = """\
; Reads are open, but for what is masked at the end. Hard links and clones are denied by default: a second
; name would lead round the rules on the first.
(allow file-read*)
(allow file-write-data
  (require-all (literal "/dev/null") (vnode-type CHARACTER-DEVICE))
  (literal "/dev/stdout") (literal "/dev/stderr") (subpath "/dev/fd"))
; Terminals that the command opens itself, and no other window's.
(allow pseudo-tty)
(allow file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-write* file-ioctl
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))"""

CALLERS_TERMINAL = """\
; The caller's terminal was handed in on purpose.
(allow file-write-data file-ioctl (literal "/dev/tty"))
(allow file-ioctl (regex #"^/dev/ttys[0-9]+$"))"""

RESOLVER = """\
; The resolver asks other machines for any name, so a name can carry data out.
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
(allow mach-lookup
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd"))"""

TRUST = """\
; Checks certificates for Go and Apple's own TLS, and fetches the addresses that a certificate names.
(allow mach-lookup
  (global-name "com.apple.trustd")
  (global-name "com.apple.trustd.agent"))"""
