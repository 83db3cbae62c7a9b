/** Columns and rows; some columns are only tooltips of the one before. */

export class DataTable {
  constructor() {
    this.columns = [];
    this.rows = [];
    this.properties = new Map();
  }

  addColumn(column) {
    this.columns.push(column);
  }

  addRow(row) {
    this.rows.push(row);
  }

  addRows(rows) {
    this.rows.push(...rows);
  }

  setProperty(row, column, name, value) {
    this.properties.set(`${row} ${column} ${name}`, value);
  }

  getProperty(row, column, name) {
    return this.properties.get(`${row} ${column} ${name}`);
  }

  /** Values of a column; a cell may be a value or `{v: value, f: as text}`. */
  values(column) {
    return this.rows.map((row) => valueOf(row[column]));
  }

  /** The columns that are drawn, after the first: `{column, label, tooltip}`, tooltip being a column or -1. */
  series() {
    const found = [];
    this.columns.forEach((column, index) => {
      if (index === 0) return;
      if (column.role === "tooltip") found.at(-1).tooltip = index;
      else found.push({ column: index, label: labelOf(column), tooltip: -1 });
    });
    return found;
  }
}

/** A table of an array of arrays, whose first one holds the labels. */
export function arrayToDataTable(array) {
  const table = new DataTable();
  for (const label of array[0]) table.addColumn({ label });
  table.addRows(array.slice(1));
  return table;
}

export function labelOf(column) {
  return column.label ?? column.name ?? column.id ?? "";
}

export function valueOf(cell) {
  return cell !== null && typeof cell === "object" && "v" in cell ? cell.v : cell;
}

export function textOf(cell) {
  if (cell !== null && typeof cell === "object" && "f" in cell) return cell.f;
  const value = valueOf(cell);
  if (typeof value === "number") return value.toLocaleString("en", { maximumFractionDigits: 3 });
  return value === null || value === undefined ? "" : String(value);
}
