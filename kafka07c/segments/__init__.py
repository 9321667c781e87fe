"""Log segment files on disk: read, check, write, recover.

========== ===========================================================================================================
files      names of segments and logs, what a directory holds, bytes of a file by mapping or by copying
reading    one segment as message sets; what is wrong, named where it is
report     what ``Log.verify`` finds
recovery   what 0.7.2 keeps of the last segment after a crash, and a copy of the rest
writing    append, flush, roll, retention
log        ``Log``, which puts them together
========== ===========================================================================================================
"""

from kafka07c.segments.files import Segment, find_logs
from kafka07c.segments.log import Log
from kafka07c.segments.recovery import Recovery
from kafka07c.segments.report import CorruptRange, LogReport, SegmentReport
from kafka07c.segments.writing import LogSlice

__all__ = ["CorruptRange", "Log", "LogReport", "LogSlice", "Recovery", "Segment", "SegmentReport", "find_logs"]
