package io.eyas;

/** When a named attribute is set; the order is that of the C library's numbers. */
public enum AttributeCondition {
    /** In any case. */
    ALWAYS,
    /** Only if there is no attribute of this name. */
    NEW,
    /** Only if there is an attribute of this name. */
    PRESENT
}
