"""The processor that runs an action, for compilers whose results depend on it: `processor:here`, or a level by name.

Levels are those of the System V ABI for x86-64 (`x86-64-v3`); other machines have one level, their name. An action that
declares `processor:here` has the level of the machine that runs it in its key, and the instructions that the level does
not name (AMX, SVE), because a compiler left alone takes those as well. With a level by name it runs only on machines of
just that level, and the compiler is to be told to keep to it.
"""

from __future__ import annotations

import platform
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

CPUINFO = Path("/proc/cpuinfo")
_HERE = "here"
# What Linux calls the features that a level adds, those of the levels below it aside.
_LEVELS = (
    ("x86-64-v2", frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])),
    ("x86-64-v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
    ("x86-64-v4", frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])),
)
# What Linux lists beside instructions of programs: of kernels, virtual machines, timers, counters and power. Machines
# that differ in others are told apart, also by a flag that is newer than this list.
_NOT_OF_PROGRAMS = """
acpi aperfmperf apic arat arch_capabilities arch_lbr arch_perfmon art avic bhi_ctrl bpext brs bts bus_lock_detect
cat_l2 cat_l3 cdp_l2 cdp_l3 cid cmp_legacy constant_tsc cpb cppc cpuid cpuid_fault cqm cqm_llc cqm_mbm_local
cqm_mbm_total cqm_occup_llc cr8_legacy dca de decodeassists debug_swap ds_cpl dtes64 dtherm dts epb ept ept_ad est
extapic extd_apicid fdp_excptn_only flexpriority flush_l1d flushbyasid fpu fred hfi ht hw_pstate hwp hwp_act_window
hwp_epp hwp_notify hwp_pkg_req hypervisor ibpb ibpb_exit_to_user ibrs ibrs_enhanced ibs ida intel_ppin intel_pt
invpcid_single ia64 irperf kaiser lbrv lbr_v2 mba mca mce md_clear mp msr mtrr nodeid_msr nonstop_tsc nopl npt
nrip_save nx ospke osvw overflow_recov pae pat pausefilter pbe pcid pconfig pdcm pdpe1gb pebs perfctr_core perfctr_l2
perfctr_llc perfctr_nb perfmon_v2 pfthreshold pge pln pn proc_feedback pse pse36 pti ptsc pts rapl rdt_a rep_good
ring3mwait rrsba_ctrl sdbg sep sev sev_es sev_snp skinit sme smap smca smep smx split_lock_detect spec_ctrl ss ssbd
stibp stibp_always_on succor svm svm_lock syscall tce tdx_guest tm tm2 topoext tpr_shadow tsc tsc_adjust
tsc_deadline_timer tsc_known_freq tsc_reliable tsc_scale umip user_shstk v_msr_vmsave_vmload v_spec_ctrl
v_vmsave_vmload vgif virt_ssbd vmcall vmcb_clean vme vmmcall vmx vnmi vnnmi vpid wdt x2apic x2avic xsaves xsaveerptr
xtopology xtpr
"""


def instructions(cpuinfo: str, machine: str) -> list[str]:
    """The instructions of the first processor, as Linux calls them, sorted: a compiler left alone takes them all."""
    if machine != "x86_64":
        return sorted(_flags(cpuinfo, "Features"))
    return sorted(_flags(cpuinfo, "flags").difference(_NOT_OF_PROGRAMS.split()))


def processor_level(cpuinfo: str, machine: str) -> str:
    """The level of a machine, by what /proc/cpuinfo says and what `uname -m` calls it."""
    if machine != "x86_64":
        return machine
    flags = _flags(cpuinfo, "flags")
    level = "x86-64"
    for name, features in _LEVELS:
        if not features <= flags:
            break
        level = name
    return level


def _flags(cpuinfo: str, field: str) -> set[str]:
    lines = [line for line in cpuinfo.splitlines() if line.startswith(field)]
    return set(lines[0].partition(":")[2].split()) if lines else set()


class _Processor(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        del files
        if path != _HERE and path != (level := _level()):
            raise LocalEnvironmentError(
                f"an action is for processors of the level {path}, and this machine has {level}",
                advice=(f"build it on a machine of the level {path}, or for {level}",),
            )

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        self.check(files, path)
        level = _level()
        # A level of x86-64 says which instructions there are; the name of another machine does not.
        named = path != _HERE and level != platform.machine()
        return [level] if named else [level, *instructions(_cpuinfo(), platform.machine())]

    def version(self, files: InstalledFiles) -> str:
        del files
        return _level()


def _level() -> str:
    return processor_level(_cpuinfo(), platform.machine())


def _cpuinfo() -> str:
    try:
        return CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LocalEnvironmentError(f"{CPUINFO} cannot be read: {error.strerror}") from error


TOOLCHAIN = _Processor(name="processor", takes_path=True, is_optional=True)
